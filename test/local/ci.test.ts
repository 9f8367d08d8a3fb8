import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, cp, mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { createTestFolder } from "../folders.ts";

// Runs a copy of .ci/run. Its commands do nothing, except `npm run test:all`, which runs the script of each case.
const originalScript = fileURLToPath(new URL("../../.ci/run", import.meta.url));
const folder = await createTestFolder();

before(async () => {
  const commands = { npm: '[ "$2" != test:all ] || eval "$TESTS"', npx: "", dpkg: "", go: "" };
  await mkdir(join(folder, "bin"));
  for (const [name, does] of Object.entries(commands)) {
    await writeFile(join(folder, "bin", name), `#!/usr/bin/env bash\n${does}\n`);
    await chmod(join(folder, "bin", name), 0o755);
  }
  await cp(dirname(originalScript), join(folder, "project/.ci"), { recursive: true });
});

/** Runs the copy of .ci/run, with this shell script in place of the tests. Returns the exit code and the last line. */
const runCi = (tests: string) => {
  const env = { ...process.env, PATH: `${join(folder, "bin")}:${process.env.PATH}`, TESTS: tests };
  const { status, stdout } = spawnSync("bash", [join(folder, "project/.ci/run")], { env, encoding: "utf8" });
  return [status, stdout.trimEnd().split("\n").at(-1)];
};

// Besides the tests, .ci/run makes ten other checks, which all succeed here. The run of all tests counts as one more
// check, which fails if a test fails.
describe(".ci/run", () => {
  it(".ci/run counts the checks and the tests that passed", () => {
    assert.deepEqual(runCi('printf "ℹ pass 7\\nℹ fail 0\\nℹ cancelled 0\\n"'), [0, "18 passed, 0 failed"]);
  });

  it(".ci/run fails if tests fail", () => {
    const tests = 'printf "ℹ pass 5\\nℹ fail 1\\nℹ cancelled 1\\n"; exit 1';
    assert.deepEqual(runCi(tests), [1, "15 passed, 3 failed"]);
  });

  it(".ci/run fails if the tests end before they are counted", () => {
    assert.deepEqual(runCi("exit 137"), [1, "10 passed, 1 failed"]);
  });
});
