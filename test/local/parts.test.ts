import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { createTestFolder } from "../folders.ts";

// Runs tests with stand-ins for the installed programs, and reads which parts the run reports as missing or outdated.
const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = await createTestFolder();

const writeCommand = async (file: string, text: string) => {
  await mkdir(dirname(join(folder, file)), { recursive: true });
  await writeFile(join(folder, file), `#!/bin/sh\necho "${text}"\n`);
  await chmod(join(folder, file), 0o755);
};
before(async () => {
  // These commands stand in for installed programs, and print old versions. python3 is asked for the version of moto.
  await writeCommand("old/python3", "5.2.1");
  await writeCommand("old/cfn-lint", "cfn-lint 1.40.0");
  const suites = [
    'describe("templates", await needs("cfn-lint"), () => it("are linted", () => {}));',
    'describe("calls", await needs("moto"), () => it("are answered", () => {}));',
    'describe("rules", await needs("API server"), () => it("are called", () => {}));',
    'it("needs nothing", () => {});',
  ];
  const parts = JSON.stringify(join(root, "test/parts.ts"));
  const imports = `import { describe, it } from "node:test";\nimport { needs } from ${parts};\n`;
  await writeFile(join(folder, "suites.test.ts"), `${imports}${suites.join("\n")}\n`);
});

/** Runs the suites with these variables. Returns the exit code, the output, and its report of skipped tests. */
const run = (env: Record<string, string>) => {
  const { NODE_TEST_CONTEXT: _, POSTERN_REQUIRE_ALL: __, ...inherited } = process.env;
  const words = [join(root, "test/run.ts"), join(folder, "suites.test.ts")];
  const { status, stdout } = spawnSync(process.execPath, words, {
    env: { ...inherited, XDG_CACHE_HOME: join(folder, "cache"), POSTERN_SEED: "7", ...env },
    encoding: "utf8",
  });
  const [, report = ""] = /\n(Skipped:\n[\s\S]*)$/.exec(stdout) ?? [];
  return { status, report, stdout };
};

describe("a run of tests", () => {
  it("a run of tests lists the skipped tests with the reason if a part has another version than is pinned", () => {
    const path = [join(folder, "old"), process.env.PATH].join(delimiter);
    const { status, report } = run({ PATH: path });
    const [linter, moto, apiserver, ...rest] = report.split("\n- ").slice(1);
    assert.match(
      linter ?? "",
      /^cfn-lint 1\.40\.0 is here and [\d.]+ is wanted: npm run aws installs it\n +templates$/,
    );
    assert.match(moto ?? "", /^moto 5\.2\.1 is here and [\d.]+ is wanted: npm run aws installs it\n +calls$/);
    assert.match(apiserver ?? "", /^kube-apiserver 1\.\d+ is not here: npm run cluster builds it\n +rules\n/);
    assert.match(apiserver ?? "", /\n\nPOSTERN_SEED=7 repeats this run\.\n$/);
    assert.deepEqual([status, rest], [0, []]);
  });

  it("a run of tests skips the tests that need a part that is not installed", () => {
    const { status, report } = run({ PATH: join(folder, "none") });
    for (const part of ["cfn-lint", "moto", "kube-apiserver"])
      assert.match(report, new RegExp(`^- ${part} [\\d.]+ is not here: npm run (aws|cluster) `, "m"));
    assert.equal(status, 0);
  });

  it("a run of tests that requires all parts fails if a part is missing", () => {
    const { status, stdout } = run({ PATH: join(folder, "none"), POSTERN_REQUIRE_ALL: "1" });
    assert.match(stdout, /cfn-lint [\d.]+ is not here: npm run aws installs it/);
    assert.equal(status, 1);
  });
});
