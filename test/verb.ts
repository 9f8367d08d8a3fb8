import { Readable } from "node:stream";
import { runPostern } from "../infra/main.ts";
import type { ProgramOutput } from "./checkout.ts";

/**
 * Runs `postern VERB …` in this process, in a folder, because a process for each test would take long. Returns the
 * texts that the verb prints. The test runner prints bytes, which are written as usual. Only one verb may run at a
 * time.
 */
export const runVerb = async (folder: string, words: readonly string[], stdin = ""): Promise<ProgramOutput> => {
  const printed = { stdout: "", stderr: "" };
  const oldFolder = process.cwd();
  const oldStdin = Object.getOwnPropertyDescriptor(process, "stdin");
  const restorers = (["stdout", "stderr"] as const).map((name) => {
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
    process.chdir(oldFolder);
    if (oldStdin) Object.defineProperty(process, "stdin", oldStdin);
    for (const restore of restorers) restore();
  }
};
