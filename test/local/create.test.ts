import assert from "node:assert/strict";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { runProgram } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";

const program = fileURLToPath(new URL("../../infra/create/create.js", import.meta.url));
const usage = "name one folder for the new project: create-postern my-rules\n";

describe("create-postern", async () => {
  const folder = await createTestFolder();
  before(async () => {
    await mkdir(join(folder, "full"));
    await writeFile(join(folder, "full/page.md"), "");
    await writeFile(join(folder, "file"), "");
  });

  for (const [given, words, code, stderr] of [
    ["a missing folder", [], 2, usage],
    ["an option", ["--yes"], 2, usage],
    ["two folders", ["one", "two"], 2, usage],
    ["a folder that is not empty", ["full"], 1, "full can't become a project: it is not empty\n"],
    ["a file", ["file"], 1, /^file can't become a project: EEXIST/],
  ] as const)
    it(`create-postern refuses ${given}, and writes nothing`, async () => {
      const result = await runProgram([program, ...words], { cwd: folder, env: {} });
      assert.equal(result.code, code);
      if (typeof stderr === "string") assert.equal(result.stderr, stderr);
      else assert.match(result.stderr, stderr);
      assert.deepEqual((await readdir(folder, { recursive: true })).sort(), ["file", "full", join("full", "page.md")]);
    });
});
