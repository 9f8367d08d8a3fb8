import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as waitForOtherWork } from "node:timers/promises";
import { exactJson } from "#lib/exact-json.ts";
import { formatError } from "#lib/masking/masked-error.ts";
import type { RecordedReview } from "#lib/recording/recorder.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { formatCount } from "../cli/progress.ts";
import { toOneLine, truncateText } from "../cli/terminal.ts";

/** Appends recorded reviews to files in a folder. Each rule of each cluster has a file: `<cluster>/<rule>.yaml`. */
export interface LocalRecordingWriter {
  /** Queues a review, which is written to a file later. Returns at once, and never throws. */
  record(review: RecordedReview): void;
  /** Appends a finished recording, such as one from a bucket, and waits until it is in the file. Never throws. */
  append(cluster: string, rule: string, line: string): Promise<void>;
  /** Waits until all recordings are written, and returns a summary. */
  close(): Promise<string>;
}

/** A queued review, and its approximate size in characters. */
interface QueuedReview {
  review: RecordedReview;
  length: number;
}

/** The maximum length of the queue of reviews to record. It has room for about ten thousand Pods. */
const maxQueueCharacters = 32 * 1024 * 1024;
/** Recorded lines are collected until they have this length, and then written to their files. */
const batchCharacters = 1024 * 1024;
/** The number of reasons for left-out reviews that are counted separately. Further reasons are counted together. */
const maxReasons = 20;

/** Opens a folder for recordings. `say` gets each problem when it occurs first. */
export const openLocalRecordingWriter = async (
  folder: string,
  maxLinesPerFile: number,
  say: (sentence: string) => void,
): Promise<LocalRecordingWriter> => {
  await mkdir(folder, { recursive: true, mode: 0o700 }).catch((error) => {
    throw new Complaint(`--to ${folder} can't be made: ${toSentence(error)}`);
  });
  const counts = new Map<string, number>();
  const omissions = openOmissions();
  const reported = new Set<string>();
  const queue: QueuedReview[] = [];
  let queuedCharacters = 0;
  let currentWrite: Promise<void> | undefined;

  const reportOnce = (sentence: string) => {
    if (!reported.has(sentence)) say(sentence);
    reported.add(sentence);
  };
  const append = async (cluster: string, rule: string, lines: readonly string[]) => {
    const place = getRecordingPath(cluster, rule);
    const count = counts.get(place) ?? 0;
    const kept = lines.slice(0, Math.max(0, maxLinesPerFile - count));
    const excess = lines.length - kept.length;
    if (excess > 0) {
      reportOnce(`${place} has ${maxLinesPerFile} reviews, and gets no more; --most N takes more`);
      omissions.add(`beyond ${maxLinesPerFile} of a rule`, excess);
    }
    if (kept.length === 0) return;
    try {
      await appendLines(folder, cluster, place, kept.join(""));
      counts.set(place, count + kept.length);
    } catch (error) {
      reportOnce(`${join(folder, place)} can't be written: ${toSentence(error)}`);
      omissions.add("not written", kept.length);
    }
  };

  const write = async (): Promise<void> => {
    while (queue.length > 0) {
      const batch = new Map<string, { cluster: string; rule: string; lines: string[] }>();
      let size = 0;
      while (queue.length > 0 && size < batchCharacters) {
        // Making a recording's line takes as long as answering a review. Waiting reviews are answered first.
        await waitForOtherWork();
        const next = queue.shift();
        if (next === undefined) break;
        queuedCharacters -= next.length;
        const { cluster, rule } = next.review.origin;
        const place = getRecordingPath(cluster, rule);
        const line =
          (counts.get(place) ?? 0) < maxLinesPerFile
            ? await next.review.line().catch((error) => omissions.addError(error, next.review))
            : "";
        if (line === undefined) continue;
        const group = batch.get(place) ?? { cluster, rule, lines: [] };
        group.lines.push(line);
        batch.set(place, group);
        size += line.length;
      }
      for (const { cluster, rule, lines } of batch.values()) await append(cluster, rule, lines);
    }
  };

  return {
    record: (review) => {
      const size = estimateLength(review.request);
      if (queuedCharacters + size > maxQueueCharacters) return omissions.add("too many at once");
      queuedCharacters += size;
      queue.push({ review, length: size });
      currentWrite ??= write().finally(() => {
        currentWrite = undefined;
      });
    },
    append: (cluster, rule, line) => append(cluster, rule, [line]),
    close: async () => {
      while (currentWrite) await currentWrite;
      const kept = [...counts.values()].reduce((sum, count) => sum + count, 0);
      return `${formatCount(kept, "review")} recorded in ${folder}${omissions.sentence()}`;
    },
  };
};

/** Counts the reviews that are left out, by reason. */
const openOmissions = () => {
  const counts = new Map<string, number>();
  const add = (why: string, count = 1): void => {
    const reason = counts.has(why) || counts.size < maxReasons ? why : "for other reasons";
    counts.set(reason, (counts.get(reason) ?? 0) + count);
  };
  return {
    add,
    addError: (error: unknown, { request }: RecordedReview): undefined => {
      add(truncateText(toOneLine(formatError(error, { request })), 200));
    },
    sentence: () => {
      const reasons = [...counts].map(([why, count]) => `${count} ${why}`);
      return reasons.length > 0 ? `; left out: ${reasons.join(", ")}` : "";
    },
  };
};

/**
 * Estimates the length of the line that records a request. A request that is nested too deep for JSON counts as a full
 * batch. Its error is reported later, when its line is made.
 */
const estimateLength = (request: object): number => {
  try {
    return exactJson.stringify(request).length;
  } catch {
    return batchCharacters;
  }
};

const getRecordingPath = (cluster: string, rule: string) => join(cluster, `${rule}.yaml`);

/** Appends all lines to a file of recordings, or none of them. Fails if `folder` was deleted. */
const appendLines = async (folder: string, cluster: string, place: string, lines: string): Promise<void> => {
  await mkdir(join(folder, cluster), { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  const file = await open(join(folder, place), "a+", 0o600);
  try {
    const { size } = await file.stat();
    const hasIncompleteLine = size > 0 && !(await endsLine(file, size));
    await writeBytes(file, hasIncompleteLine ? `\n${lines}` : lines).catch(async (error) => {
      // The truncation fails for a file that isn't regular, such as a pipe. The error of the write is reported anyway.
      await file.truncate(size).catch(() => {});
      throw error;
    });
  } finally {
    await file.close();
  }
};

/** Writes a text in one call if possible, because other processes may append to the same file between two calls. */
const writeBytes = async (file: FileHandle, text: string): Promise<void> => {
  const bytes = Buffer.from(text);
  // A call may write only a part of the bytes. On a full disk, the next call fails.
  for (let offset = 0; offset < bytes.length; ) offset += (await file.write(bytes, offset)).bytesWritten;
};

/** Reports whether a file ends with a line break. If it doesn't, an earlier write was interrupted. */
const endsLine = async (file: FileHandle, size: number): Promise<boolean> => {
  const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] === "\n".charCodeAt(0);
};
