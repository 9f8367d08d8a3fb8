import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";

// .ci/run as it stands, with commands that do nothing but what a case has `npm test` do.
const run = fileURLToPath(new URL("../.ci/run", import.meta.url));
let folder = "";

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "postern-"));
  const commands = { npm: '[ "$1" != test ] || eval "$TESTS"', npx: "", dpkg: "", go: "" };
  const installed = ["cfn-lint-1.58.0/bin/cfn-lint", "moto-5.2.5-ec2-secrets/bin/moto_server"];
  const programs = [
    ...Object.entries(commands).map(([name, does]) => [`bin/${name}`, does]),
    ...installed.map((name) => [`cache/postern/${name}`, ""]),
  ] as const;
  for (const [name = "", does = ""] of programs) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), `#!/usr/bin/env bash\n${does}\n`);
    await chmod(join(folder, name), 0o755);
  }
  for (const place of ["project", "project/test/runtime"]) {
    await mkdir(join(folder, place, "node_modules"), { recursive: true });
    await writeFile(join(folder, place, "package-lock.json"), "{}");
  }
  await cp(dirname(run), join(folder, "project/.ci"), { recursive: true });
});
after(() => rm(folder, { recursive: true }));

/** The exit code and the last line, where `npm test` does this. */
const ending = (tests: string) => {
  const env = {
    ...process.env,
    PATH: `${join(folder, "bin")}:${process.env.PATH}`,
    XDG_CACHE_HOME: join(folder, "cache"),
    TESTS: tests,
  };
  const { status, stdout } = spawnSync("bash", [join(folder, "project/.ci/run")], { env, encoding: "utf8" });
  return [status, stdout.trimEnd().split("\n").at(-1)];
};

describe(".ci/run", () => {
  it("counts the checks and the tests that passed", () => {
    assert.deepEqual(ending('printf "ℹ pass 7\\nℹ fail 0\\nℹ cancelled 0\\n"'), [0, "18 passed, 0 failed"]);
  });

  it("fails where tests fail", () => {
    const tests = 'printf "ℹ pass 5\\nℹ fail 1\\nℹ cancelled 1\\n"; exit 1';
    assert.deepEqual(ending(tests), [1, "15 passed, 3 failed"]);
  });

  it("fails where the tests end before they are counted", () => {
    assert.deepEqual(ending("exit 137"), [1, "10 passed, 1 failed"]);
  });
});
