import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { exactJson } from "#lib/exact-json.ts";
import { formatError } from "#lib/masking/masked-error.ts";
import type { RecordedReview } from "#lib/recording/recorder.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { formatCount } from "../cli/progress.ts";
import { toOneLine, truncateText } from "../cli/terminal.ts";

/**
 * Appends reviews to recordings files in a folder, one file for each rule of each cluster: `<cluster>/<rule>.yaml`.
 */
export interface LocalRecordingWriter {
  /**
   * Queues a review, to be written to a file later, and returns at once. A failure to write it doesn't affect the
   * caller.
   */
  record(review: RecordedReview): void;
  append(cluster: string, rule: string, line: string): Promise<void>;
  /** Waits until all recordings are written, and returns a summary. */
  close(): Promise<string>;
}

/** A queued review, and its approximate size in characters. */
interface QueuedReview {
  review: RecordedReview;
  length: number;
}

/** The limit of the queue of reviews to record, in characters: about ten thousand Pods. */
const longestQueue = 32 * 1024 * 1024;
/** The number of characters of recorded lines at which a batch is written to its file. */
const longestBatch = 1024 * 1024;
/** The number of reasons for left-out reviews that are counted separately; further reasons share one count. */
const mostReasons = 20;

/** Opens a folder for recordings with at most `most` lines per file. `say` gets each problem once, when it occurs. */
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
  let length = 0;
  let writing: Promise<void> | undefined;

  const reportOnce = (sentence: string) => {
    if (!reported.has(sentence)) say(sentence);
    reported.add(sentence);
  };
  const append = async (cluster: string, rule: string, lines: readonly string[]) => {
    const place = getRecordingPath(cluster, rule);
    const count = counts.get(place) ?? 0;
    const kept = lines.slice(0, Math.max(0, maxLinesPerFile - count));
    const beyond = lines.length - kept.length;
    if (beyond > 0) {
      reportOnce(`${place} has ${maxLinesPerFile} reviews, and gets no more; --most N takes more`);
      omissions.add(`beyond ${maxLinesPerFile} of a rule`, beyond);
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
      while (queue.length > 0 && size < longestBatch) {
        // Reviews that wait for an answer run first: making a recording's line takes as long as a review.
        await turn();
        const next = queue.shift();
        if (next === undefined) break;
        length -= next.length;
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
      if (length + size > longestQueue) return omissions.add("too many at once");
      length += size;
      queue.push({ review, length: size });
      writing ??= write().finally(() => {
        writing = undefined;
      });
    },
    append: (cluster, rule, line) => append(cluster, rule, [line]),
    close: async () => {
      while (writing) await writing;
      const kept = [...counts.values()].reduce((sum, count) => sum + count, 0);
      return `${formatCount(kept, "review")} recorded in ${folder}${omissions.sentence()}`;
    },
  };
};

const openOmissions = () => {
  const left = new Map<string, number>();
  const add = (why: string, count = 1): void => {
    const reason = left.has(why) || left.size < mostReasons ? why : "for other reasons";
    left.set(reason, (left.get(reason) ?? 0) + count);
  };
  return {
    add,
    addError: (error: unknown, { request }: RecordedReview): undefined => {
      add(truncateText(toOneLine(formatError(error, { request })), 200));
    },
    sentence: () => {
      const reasons = [...left].map(([why, count]) => `${count} ${why}`);
      return reasons.length > 0 ? `; left out: ${reasons.join(", ")}` : "";
    },
  };
};

/**
 * Estimates the characters of the line that records a request. A request that is too deep for JSON counts as a full
 * batch; recording it reports the error.
 */
const estimateLength = (request: object): number => {
  try {
    return exactJson.stringify(request).length;
  } catch {
    return longestBatch;
  }
};

const getRecordingPath = (cluster: string, rule: string) => join(cluster, `${rule}.yaml`);

/** Appends all lines to a file of recordings, or none. Doesn't create `folder` again if it was deleted. */
const appendLines = async (folder: string, cluster: string, place: string, lines: string): Promise<void> => {
  await mkdir(join(folder, cluster), { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  const file = await open(join(folder, place), "a+", 0o600);
  try {
    const { size } = await file.stat();
    const begun = size > 0 && !(await endsLine(file, size));
    await writeBytes(file, begun ? `\n${lines}` : lines).catch(async (error) => {
      // The truncation may fail for a file that is not regular; the error of the write is reported.
      await file.truncate(size).catch(() => {});
      throw error;
    });
  } finally {
    await file.close();
  }
};

/** Writes in one call, while `appendFile` needs several: other processes may append to the same file. */
const writeBytes = async (file: FileHandle, text: string): Promise<void> => {
  const bytes = Buffer.from(text);
  // One write may take only a part of the bytes, so the rest is written again; on a full disk, that next write fails.
  for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
};

/** Reports whether a file ends with a line break; without one, an earlier write was interrupted. */
const endsLine = async (file: FileHandle, size: number): Promise<boolean> => {
  const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] === 10;
};
