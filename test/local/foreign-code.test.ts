import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, existsSync } from "node:fs";
import { chmod, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { type ProgramOutput, runProgram } from "../checkout.ts";
import { createTestFolder } from "../folders.ts";
import { installPackage } from "../package.ts";
import { readRows } from "../rows.ts";

// Runs the packed package in folders of another team: `foreign` and, without a postern.yaml, `bare`. All code in these
// folders, when it runs, writes its name into the file `ran`. The package itself is installed in `team`, which also has
// rules and the postern.yaml for --config, and in `tool`.
const folder = await createTestFolder();
const [teamFolder, foreignFolder, toolFolder, bareFolder] = ["team", "foreign", "tool", "bare"].map((name) =>
  join(folder, name),
) as [string, string, string, string];
const ranFile = join(folder, "ran");

/** A command that runs in the folder of another team, and what must follow. */
interface CommandRow {
  name: string;
  words: string[];
  /** The file for --config; by default the team's postern.yaml. */
  config?: string;
  /** Whether the command gets no --config, because its option --config means another file. */
  omitsConfig?: boolean;
  code?: number;
  /** A pattern for standard output. */
  prints?: string;
  /** A pattern for standard error. `no postern.yaml` stands for missingConfigComplaint. */
  complains?: string;
  /** The files that the verb writes to the working directory. */
  writes?: string[];
}
const { withConfig, withoutConfig } = readRows<Record<"withConfig" | "withoutConfig", CommandRow[]>>(
  import.meta.filename,
);
const missingConfigComplaint =
  '^there is no postern\\.yaml in this folder or above it: "postern new NAME" writes one with a rule of your own, .*\\n$';

const write = async (file: string, text: string) => {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, text);
};

const formatRule = (refused: string | undefined) => `import { rule } from "postern/rule";
export default rule({
  summary: "Denies.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate: () => ${JSON.stringify(refused)},
});
`;

/**
 * Writes the folder of a rule that denies with the message `refused`. Without `refused`, the rule is one
 * of the other team, which must not run: it admits everything, and writes its name into the file `ran` when imported.
 */
const writeRule = async (ruleFolder: string, refused?: string) => {
  const trap = `import { appendFileSync } from "node:fs";\nappendFileSync(${JSON.stringify(ranFile)}, import.meta.url);\n`;
  await write(join(ruleFolder, "rule.js"), `${refused === undefined ? trap : ""}${formatRule(refused)}`);
  const outcome = refused === undefined ? "admitted: true" : `refused: ${refused}`;
  await write(join(ruleFolder, "cases.yaml"), `- name: denies\n  validate: { metadata: { name: a } }\n  ${outcome}\n`);
  const sections = ["Why", "Settings", "Needs"].map((title) => `\n## ${title}\n\nNone.\n`).join("");
  await write(join(ruleFolder, "README.md"), `# ${ruleFolder.split("/").at(-1)}\n\nDenies.\n${sections}`);
};

// A catalogue is a package of rules. Its main export may be any file: Postern finds the rules in the file's folder.
const cataloguePackageJson = JSON.stringify({
  name: "acme-rules",
  type: "module",
  exports: { ".": "./rules/README.md" },
});
const pod = "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\nspec: { containers: [{ name: a, image: a }] }\n";
const buildPolicy = (label: string) => `apiVersion: policy.kcloudlabs.io/v1alpha1
kind: ClusterOverridePolicy
metadata: { name: team }
spec:
  overrideRules: [{ overriders: { plaintext: [{ op: add, path: /metadata/labels, value: { team: ${label} } }] } }]
`;

before(async () => {
  await Promise.all([installPackage(teamFolder), installPackage(toolFolder)]);
  await write(join(teamFolder, "package.json"), '{ "type": "module" }');
  const catalogues = "catalogues: [postern/catalogue, acme-rules]\n";
  await write(join(teamFolder, "postern.yaml"), `${catalogues}rules:\n  allowed-registries:\n`);
  await write(
    join(teamFolder, "policies.yaml"),
    "rules: { policy-override: { settings: { policies: policies/team.yaml } } }\nclusters: { a: { connect: { manifests: state } } }\n",
  );
  await write(join(teamFolder, "policies/team.yaml"), buildPolicy("ours"));
  await write(
    join(teamFolder, "state/namespace.yaml"),
    "apiVersion: v1\nkind: Namespace\nmetadata: { name: default }\n",
  );
  await write(
    join(teamFolder, "team.cases.yaml"),
    "- name: labels a pod\n  mutate: { apiVersion: v1, kind: Pod, metadata: { name: a } }\n  becomes: { apiVersion: v1, kind: Pod, metadata: { name: a, labels: { team: ours } } }\n",
  );
  await writeRule(join(teamFolder, "functions/allowed-registries"), "only registries of the team");
  await write(join(teamFolder, "node_modules/acme-rules/package.json"), cataloguePackageJson);
  await write(join(teamFolder, "node_modules/acme-rules/rules/README.md"), "");
  await writeRule(join(teamFolder, "node_modules/acme-rules/rules/require-team"), "no team");

  await write(join(foreignFolder, "k8s/pod.yaml"), pod);
  await write(
    join(foreignFolder, "recordings.yaml"),
    await readFile(join(teamFolder, "functions/allowed-registries/cases.yaml"), "utf8"),
  );
  await write(join(foreignFolder, "package.json"), '{ "name": "postern", "type": "module" }');
  for (const rule of ["allowed-registries", "require-team", "always-deny", "policy-override"])
    for (const rulesFolder of ["functions", "node_modules/acme-rules/rules", "node_modules/postern/functions"])
      await writeRule(join(foreignFolder, rulesFolder, rule));
  cpSync(foreignFolder, bareFolder, { recursive: true });
  await write(join(foreignFolder, "postern.yaml"), `${catalogues}rules: {}\n`);
  await write(join(foreignFolder, "policies/team.yaml"), buildPolicy("theirs"));
  await write(join(foreignFolder, "node_modules/acme-rules/package.json"), cataloguePackageJson);
  await write(join(foreignFolder, "node_modules/acme-rules/rules/README.md"), "");
  // Files in a working directory that tools started by Postern would use.
  const trap = `require("node:fs").appendFileSync(${JSON.stringify(ranFile)}, __filename)`;
  for (const name of ["postern", "esbuild", "osls", "yaml"]) {
    await write(join(foreignFolder, `node_modules/${name}/package.json`), JSON.stringify({ name, main: "main.cjs" }));
    await write(join(foreignFolder, `node_modules/${name}/main.cjs`), trap);
  }
  await write(
    join(foreignFolder, ".npmrc"),
    `node-options=--require=${join(foreignFolder, "node_modules/yaml/main.cjs")}\n`,
  );
  const evil = join(foreignFolder, "functions/always-deny/rule.js");
  const paths = { "postern/*": [evil], "*": [evil] };
  await write(join(foreignFolder, "tsconfig.json"), JSON.stringify({ compilerOptions: { baseUrl: ".", paths } }));
  await write(join(foreignFolder, "serverless.yml"), "service: a\nprovider: { name: aws }\nplugins: [yaml]\n");
  for (const platform of ["linux-x64", "linux-arm64", "darwin-x64"]) {
    const node = join(foreignFolder, `node_modules/node-${platform}`);
    await write(join(node, "package.json"), "{}");
    await write(join(node, "bin/node"), `#!/bin/sh\necho node >> "${ranFile}"\n`);
    await chmod(join(node, "bin/node"), 0o755);
  }
});

const env = { PATH: process.env.PATH ?? "", HOME: folder };
const runIn = (cwd: string, project: string, ...words: string[]): Promise<ProgramOutput> =>
  runProgram([join(project, "node_modules/postern/infra/postern.js"), ...words], { cwd, env });

const listFiles = async (parent: string) =>
  (await readdir(parent, { recursive: true })).filter((file) => !file.includes("node_modules")).sort();

const requireOutput = ({ code, stdout, stderr }: ProgramOutput, row: CommandRow) => {
  assert.equal(code, row.code ?? 0, `${stdout}${stderr}`);
  assert.match(stdout, new RegExp(row.prints ?? "", "m"));
  // Many rows expect the same long complaint, so they only name it.
  const expectedComplaint = row.complains === "no postern.yaml" ? missingConfigComplaint : row.complains;
  if (expectedComplaint !== undefined) assert.match(stderr, new RegExp(expectedComplaint, "m"));
};

describe("in a folder of another team", { concurrency: 2 }, () => {
  afterEach(async () => {
    const ranFiles = existsSync(ranFile) ? await readFile(ranFile, "utf8") : "";
    await rm(ranFile, { force: true });
    assert.equal(ranFiles, "", "code of the folder ran");
  });

  describe("commands with --config", { concurrency: 1 }, () => {
    for (const row of withConfig)
      it(`with --config, only code of the config's folder runs: ${row.name}`, async () => {
        const filesBefore = await listFiles(foreignFolder);
        const words = row.words.map((word) => word.replace("TEAM", teamFolder));
        const config = row.omitsConfig
          ? []
          : ["--config", (row.config ?? "TEAM/postern.yaml").replace("TEAM", teamFolder)];
        requireOutput(await runIn(foreignFolder, teamFolder, ...words, ...config), row);
        const written = (await listFiles(foreignFolder)).filter((file) => !filesBefore.includes(file));
        assert.deepEqual([...new Set(written.map((file) => file.split("/")[0]))], row.writes ?? []);
      });

    it("serve with --config runs only code of the config's folder", async () => {
      const words = ["serve", "--port", "0", "--no-console", "--config", join(teamFolder, "postern.yaml")];
      const program = join(teamFolder, "node_modules/postern/infra/postern.js");
      const child = spawn(process.execPath, [program, ...words], { cwd: foreignFolder, env });
      let printed = "";
      for await (const chunk of child.stdout) {
        printed += chunk;
        if (printed.includes("Ctrl-C")) child.kill("SIGINT");
      }
      assert.match(printed, /^allowed-registries +validate +enforce /m);
      assert.ok(!existsSync(join(foreignFolder, ".postern")));
    });

    it("build with --config, which a row of withConfig ran, has put the team's rule into the bundle", async () => {
      const code = await readFile(join(teamFolder, "dist/allowed-registries/index.cjs"), "utf8");
      assert.ok(code.includes("only registries of the team"));
    });

    it("infra/pipelines/check.sh uses the postern.yaml of the project that it is installed in", async () => {
      const script = join(teamFolder, "node_modules/postern/infra/pipelines/check.sh");
      const path = `${dirname(process.execPath)}:${env.PATH}`;
      const child = spawn("bash", [script, "--plugins", "none"], { cwd: foreignFolder, env: { ...env, PATH: path } });
      let printed = "";
      for await (const chunk of child.stdout) printed += chunk;
      assert.match(printed, /denied by allowed-registries: only registries of the team/);
      assert.equal(child.exitCode ?? (await new Promise((resolve) => child.once("exit", resolve))), 1);
      await rm(join(foreignFolder, "postern-check"), { recursive: true });
    });
  });

  it("infra/node.js looks for Node 24 where Postern is installed, and not in another team's folder", async () => {
    // node.js searches for an installed Node if it is in a checkout, where main.ts is beside it, or an older Node runs
    // it. The only one is in the other team's folder: node.js must not find it, and uses the Node that runs this test.
    const programFolder = await createTestFolder();
    for (const file of ["node.js", "main.ts"])
      cpSync(fileURLToPath(new URL(`../../infra/${file}`, import.meta.url)), join(programFolder, file));
    const { stdout } = await runProgram([join(programFolder, "node.js"), "--version"], { cwd: foreignFolder, env });
    assert.equal(stdout, `${process.version}\n`);
  });

  describe("commands without a postern.yaml", { concurrency: 1 }, () => {
    for (const row of withoutConfig)
      it(`without a postern.yaml, no code of the folder runs: ${row.name}`, async () => {
        const filesBefore = await listFiles(bareFolder);
        requireOutput(await runIn(bareFolder, toolFolder, ...row.words), row);
        assert.deepEqual(await listFiles(bareFolder), filesBefore);
      });
  });
});

describe("a new project", () => {
  it("a new project begins with postern new in an empty folder", async () => {
    const projectFolder = join(folder, "empty");
    await mkdir(projectFolder);
    const created = await runIn(projectFolder, toolFolder, "new", "require-owner-label");
    const linked = join(toolFolder, "node_modules/postern/");
    const note = `node_modules/postern is a link to ${linked}: no package postern is installed here\n`;
    assert.deepEqual([created.code, created.stderr], [0, note]);
    const tested = await runIn(projectFolder, toolFolder, "test", "require-owner-label");
    assert.deepEqual([tested.code, tested.stderr], [0, ""], tested.stdout);
    assert.match(tested.stdout, /\n10 tests: 10 passed\n$/);
    const built = await runIn(projectFolder, toolFolder, "build");
    assert.deepEqual([built.code, built.stderr], [0, ""]);
  });

  it("a new project begins with postern new beside a package.json of CommonJS", async () => {
    const projectFolder = join(folder, "commonjs");
    await write(join(projectFolder, "package.json"), '{ "type": "commonjs" }');
    const created = await runIn(projectFolder, toolFolder, "new", "default-owner");
    assert.equal(created.code, 0, created.stderr);
    const tested = await runIn(projectFolder, toolFolder, "test");
    assert.deepEqual([tested.code, tested.stderr], [0, ""], tested.stdout);
  });

  it("a new project can be used from its subfolders, and the command says which postern.yaml it uses", async () => {
    const subfolder = join(folder, "empty/k8s");
    await write(join(subfolder, "pod.yaml"), pod);
    const { code, stdout, stderr } = await runIn(subfolder, toolFolder, "check", "pod.yaml", "--plugins", "none");
    assert.match(stdout, /denied by require-owner-label/);
    assert.deepEqual([code, stderr], [1, "uses ../postern.yaml: this folder has no postern.yaml\n"]);
  });
});
