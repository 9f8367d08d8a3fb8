import { Readable } from "node:stream";
import { runPostern } from "../infra/main.ts";
import type { ProgramOutput } from "./checkout.ts";

/**
 * Runs `postern VERB …` in this process, in a folder, so that a test doesn't pay for a process for each case. What the
 * test runner reports meanwhile is bytes, and passes by; verbs print text. One verb runs at a time.
 */
export const runVerb = async (folder: string, words: readonly string[], stdin = ""): Promise<ProgramOutput> => {
  const printed = { stdout: "", stderr: "" };
  const before = process.cwd();
  const input = Object.getOwnPropertyDescriptor(process, "stdin");
  const restore = (["stdout", "stderr"] as const).map((name) => {
    const { write } = process[name];
    process[name].write = (chunk: string | Uint8Array, ...rest: never[]) => {
      if (typeof chunk !== "string") return write.call(process[name], chunk, ...rest);
      printed[name] += chunk;
      return true;
    };
    return () => {
      process[name].write = write;
    };
  });
  Object.defineProperty(process, "stdin", { value: Readable.from([Buffer.from(stdin)]), configurable: true });
  process.chdir(folder);
  try {
    return { code: await runPostern(words), ...printed };
  } finally {
    process.chdir(before);
    if (input) Object.defineProperty(process, "stdin", input);
    for (const undo of restore) undo();
  }
};
