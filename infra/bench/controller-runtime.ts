import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { fillCache, findGoProgram, type GoProgram, locate, run } from "../parity/control-plane/go-programs.ts";

/** The webhook in Go, and the version of controller-runtime that it is made with. */
export interface GoWebhook {
  version: string;
  program: string;
}

const webhook: GoProgram = {
  sources: fileURLToPath(new URL("controller-runtime/", import.meta.url)),
  module: "controller-runtime",
  name: "controller-runtime",
  files: ["webhook"],
};

/** Returns the webhook if it was built before. */
export const findGoWebhook = async (): Promise<GoWebhook | undefined> => {
  const found = await findGoProgram(webhook);
  return found && { version: found.version, program: found.paths[0] ?? "" };
};

/** Builds it from the Go module proxy, by go.mod and go.sum; a few minutes, once. */
const buildGoWebhook = async (): Promise<void> =>
  fillCache((await locate(webhook)).folder, (draft) =>
    run(webhook.sources, "go", "build", "-ldflags", "-s -w", "-o", join(draft, "webhook"), "."),
  );

if (import.meta.main) {
  if (!(await findGoWebhook())) await buildGoWebhook();
  const { version, program } = (await findGoWebhook()) ?? {};
  process.stdout.write(`A webhook of controller-runtime ${version} is at ${program}\n`);
}
