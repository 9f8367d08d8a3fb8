import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type { Heard } from "#lib/recording/recorder.ts";
import { Complaint, sentenceOf } from "../cli/complaint.ts";
import { counted } from "../cli/progress.ts";
import { oneLine, shortened } from "../cli/terminal.ts";

/** Files of recordings in a folder, one for each rule of each cluster: `<cluster>/<rule>.yaml`. */
export interface Recordings {
  /** Keeps a review as soon as there is time for it; whatever goes wrong, nobody has to wait. */
  hear(one: Heard): void;
  /** Keeps lines that were written elsewhere. */
  append(cluster: string, rule: string, line: string): Promise<void>;
  /** When all is written: what came of it, as a sentence. */
  close(): Promise<string>;
}

/** A review that waits to be written, and about how many characters it has. */
interface Waiting {
  heard: Heard;
  length: number;
}

/** What waits to be written, in characters: some ten thousand Pods. */
const longestQueue = 32 * 1024 * 1024;
/** What is written at once, in characters. */
const longestBatch = 1024 * 1024;
/** So many different reasons are told; those after them are others. */
const mostReasons = 20;

/** Has one writer; of each file it writes so many lines at most. What is to be said at once, `say` is told. */
export const openRecordings = async (
  folder: string,
  most: number,
  say: (sentence: string) => void,
): Promise<Recordings> => {
  await mkdir(folder, { recursive: true, mode: 0o700 }).catch((error) => {
    throw new Complaint(`--to ${folder} can't be made: ${sentenceOf(error)}`);
  });
  const counts = new Map<string, number>();
  const omissions = openOmissions();
  const said = new Set<string>();
  const queue: Waiting[] = [];
  let length = 0;
  let writing: Promise<void> | undefined;

  const once = (sentence: string) => {
    if (!said.has(sentence)) say(sentence);
    said.add(sentence);
  };
  /** Of lines for one file as many as it takes. */
  const append = async (cluster: string, rule: string, lines: readonly string[]) => {
    const place = placeOf(cluster, rule);
    const count = counts.get(place) ?? 0;
    const kept = lines.slice(0, Math.max(0, most - count));
    const beyond = lines.length - kept.length;
    if (beyond > 0) {
      once(`${place} has ${most} reviews, and gets no more; --most N takes more`);
      omissions.add(`beyond ${most} of a rule`, beyond);
    }
    if (kept.length === 0) return;
    try {
      await written(folder, cluster, place, kept.join(""));
      counts.set(place, count + kept.length);
    } catch (error) {
      once(`${join(folder, place)} can't be written: ${sentenceOf(error)}`);
      omissions.add("not written", kept.length);
    }
  };

  const write = async (): Promise<void> => {
    while (queue.length > 0) {
      const batch = new Map<string, { cluster: string; rule: string; lines: string[] }>();
      let size = 0;
      while (queue.length > 0 && size < longestBatch) {
        // Making a line takes as long as a review does: whoever waits for an answer comes first.
        await turn();
        const next = queue.shift();
        if (next === undefined) break;
        length -= next.length;
        const { cluster, rule } = next.heard.origin;
        const place = placeOf(cluster, rule);
        // Of what it doesn't take any more, none is made.
        const line = (counts.get(place) ?? 0) < most ? await next.heard.line().catch(omissions.addError) : "";
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
    hear: (heard) => {
      const size = lengthOf(heard.request);
      if (length + size > longestQueue) return omissions.add("too many at once");
      length += size;
      queue.push({ heard, length: size });
      writing ??= write().finally(() => {
        writing = undefined;
      });
    },
    append: (cluster, rule, line) => append(cluster, rule, [line]),
    close: async () => {
      while (writing) await writing;
      const kept = [...counts.values()].reduce((sum, count) => sum + count, 0);
      return `${counted(kept, "review")} recorded in ${folder}${omissions.sentence()}`;
    },
  };
};

/** Counts what is left out, by reason. */
const openOmissions = () => {
  const left = new Map<string, number>();
  const add = (why: string, count = 1): void => {
    const reason = left.has(why) || left.size < mostReasons ? why : "for other reasons";
    left.set(reason, (left.get(reason) ?? 0) + count);
  };
  return {
    add,
    addError: (error: unknown): undefined => {
      add(shortened(oneLine(sentenceOf(error)), 200));
    },
    sentence: () => {
      const reasons = [...left].map(([why, count]) => `${count} ${why}`);
      return reasons.length > 0 ? `; left out: ${reasons.join(", ")}` : "";
    },
  };
};

/** About; what is too deep to be written as JSON won't be recorded either, and that is said of it when it is tried. */
const lengthOf = (request: object): number => {
  try {
    return JSON.stringify(request).length;
  } catch {
    return longestBatch;
  }
};

const placeOf = (cluster: string, rule: string) => join(cluster, `${rule}.yaml`);

/** Lines as a whole, or nothing of them; the folder itself isn't made again where somebody took it away. */
const written = async (folder: string, cluster: string, place: string, lines: string): Promise<void> => {
  await mkdir(join(folder, cluster), { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  const file = await open(join(folder, place), "a+", 0o600);
  try {
    const { size } = await file.stat();
    const begun = size > 0 && !(await endsLine(file, size));
    await appended(file, begun ? `\n${lines}` : lines).catch(async (error) => {
      // What is no plain file can't be cut off; why it wasn't written is what counts.
      await file.truncate(size).catch(() => {});
      throw error;
    });
  } finally {
    await file.close();
  }
};

/** In one go, where `appendFile` takes several: others may write there, too. */
const appended = async (file: FileHandle, text: string): Promise<void> => {
  const bytes = Buffer.from(text);
  // A disk that is full takes a part, and says so when it is asked to take the rest.
  for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
};

/** Whoever wrote before may have been cut off. */
const endsLine = async (file: FileHandle, size: number): Promise<boolean> => {
  const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] === 10;
};
