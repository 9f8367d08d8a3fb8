import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, mkdir, readFile, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { cacheFolder } from "../parity/control-plane/binaries.ts";

const here = fileURLToPath(new URL("controller-runtime/", import.meta.url));

/** The webhook in Go, and the version of controller-runtime that it is made with. */
export interface GoWebhook {
  version: string;
  program: string;
}

/** Where it is or would be. What it is made of is in the name: a change makes another one. */
const place = async (): Promise<GoWebhook> => {
  const sources = await Promise.all(["go.mod", "go.sum", "main.go"].map((file) => readFile(join(here, file), "utf8")));
  const [, version] = /controller-runtime v([\d.]+)/.exec(sources.join("\n")) ?? [];
  if (version === undefined) throw new Error(`${here}go.mod names no version of controller-runtime`);
  const digest = createHash("sha256").update(sources.join("\0")).digest("hex").slice(0, 12);
  return { version, program: join(cacheFolder, `controller-runtime-${version}-${digest}`, "webhook") };
};

/** The webhook, where it was built before. */
export const findGoWebhook = async (): Promise<GoWebhook | undefined> => {
  const found = await place();
  return access(found.program).then(
    () => found,
    () => undefined,
  );
};

/** Builds it from the Go module proxy, by go.mod and go.sum; a few minutes, once. */
export const buildGoWebhook = async (): Promise<GoWebhook> => {
  const made = await place();
  const draft = `${made.program}.${process.pid}`;
  await mkdir(dirname(made.program), { recursive: true });
  await promisify(execFile)("go", ["build", "-ldflags", "-s -w", "-o", draft, "."], {
    cwd: here,
    env: { ...process.env, CGO_ENABLED: "0" },
  });
  await rename(draft, made.program);
  return made;
};

if (import.meta.main) {
  const { version, program } = (await findGoWebhook()) ?? (await buildGoWebhook());
  process.stdout.write(`A webhook of controller-runtime ${version} is at ${program}\n`);
}
