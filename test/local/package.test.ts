import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { createPathExists, repositoryMark } from "../../infra/package/pages.ts";
import { openCheckout, type ProgramOutput, runProgram } from "../checkout.ts";
import { chooseSixth } from "../choices.ts";
import { buildProjectOfEveryRule, policyRules } from "../every-rule.ts";
import { createTestFolder } from "../folders.ts";
import { startNpmRegistry } from "../npm-registry.ts";
import { packOnce, unpackModulePackage } from "../package.ts";
import { readersFiles } from "../readers-files.ts";

// Installs the packed packages in a project outside this checkout, as a user does, and uses their contents.

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = await createTestFolder();
const project = join(folder, "project");
const postern = join(project, "node_modules/postern");
const env = { PATH: process.env.PATH ?? "", HOME: folder, CI: "true" };

const pod = `apiVersion: v1
kind: Pod
metadata: { name: web, namespace: default }
spec: { containers: [{ name: web, image: docker.io/nginx }] }
`;

const runPostern = (...words: string[]): Promise<ProgramOutput> =>
  runProgram([join(postern, "infra/postern.js"), ...words], { cwd: project, env });

const mustWork = async (...words: string[]): Promise<string> => {
  const { code, stdout, stderr } = await runPostern(...words);
  assert.equal(code, 0, `${words.join(" ")}: ${stdout}${stderr}`);
  return stdout;
};

const listRules = async (): Promise<string[]> =>
  (await readdir(join(postern, "functions"), { withFileTypes: true }))
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);

before(async () => {
  const tarballs = await packOnce();
  const created = join(folder, "create");
  await mkdir(created);
  await run("tar", ["-xzf", tarballs.create, "--strip-components=1", "-C", created]);
  // The registry has the packages that this checkout has installed, and postern-kubernetes if that package was built.
  // The project gets only postern and its dependencies, so the devDependencies of a new project are deleted.
  const registry = await startNpmRegistry(await unpackModulePackage(join(folder, "module")));
  try {
    await runProgram([join(created, "create.js"), project], { cwd: folder, env });
    await writeFile(join(project, ".npmrc"), `registry=${registry.url}\ncache=${join(folder, "cache")}\n`);
    await run("npm", ["pkg", "delete", "devDependencies"], { cwd: project, env });
    await run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", tarballs.postern], {
      cwd: project,
      env,
    });
  } finally {
    await registry.close();
  }
  const { ca } = await readOrCreateServerCertificate(folder, "127.0.0.1");
  await writeFile(join(project, "all.yaml"), await buildProjectOfEveryRule(await listRules(), ca));
  await writeFile(join(project, "unconnected.yaml"), "rules: { namespace-exists: {} }\n");
  await writeFile(join(project, "pod.yaml"), pod);
});

describe("the package postern", () => {
  it("the package builds every rule, and the bundles are as small as those of a checkout", async () => {
    const names = await listRules();
    const checkout = await openCheckout(names);
    try {
      await checkout.write("all.yaml", await readFile(join(project, "all.yaml"), "utf8"));
      const words = ["build", "--config", "all.yaml", "-o", "json"];
      const { stdout: wanted, stderr } = await checkout.postern({}, ...words);
      const listSizes = (text: string) =>
        JSON.parse(text).map(({ rule, bytes }: { rule: string; bytes: number }) => {
          // esbuild's shortened names depend on the order of the modules' paths, so the sizes may differ a little.
          return [rule, Math.round(bytes / 500)];
        });
      const sizes = listSizes(await mustWork(...words));
      assert.deepEqual(sizes.map(([rule]: [string]) => rule).sort(), names.sort());
      assert.deepEqual(sizes, listSizes(wanted), stderr);
    } finally {
      await checkout.remove();
    }
  });

  it("the package checks manifests by every rule that is on", async () => {
    const { code, stdout, stderr } = await runPostern("check", "pod.yaml", "--config", "all.yaml");
    assert.match(stdout, /denied by pod-security-policy: .*unable to validate/);
    assert.equal(code, 1, stderr);
    assert.doesNotMatch(stderr, /does not load|no bundle/);
  });

  it("the package passes the tests of the rules that evaluate policies, and of a sixth of its rules", async () => {
    const rules = (await listRules()).map((name) => ({ name }));
    // All rules would take too long. Each run's seed chooses another sixth for the tests that use the rules' cases.
    const sixth = chooseSixth(rules, { testedBy: "cases" }).map(({ name }) => name);
    const stdout = await mustWork("test", ...new Set([...policyRules, ...sixth]));
    assert.match(stdout, /^(\d+) tests: \1 passed$/m);
  });

  it("the package prints the webhook entries of every rule", async () => {
    const words = ["manifests", "--url", "https://rules.example", "--config", "all.yaml", "--offline"];
    const stdout = await mustWork(...words);
    // The cluster itself evaluates the policies of these rules, so the policies are printed, and no entry.
    const nativePolicies: Record<string, string> = {
      "mutating-admission-policy": "kind: MutatingAdmissionPolicy",
      "validating-admission-policy": "kind: ValidatingAdmissionPolicy",
    };
    const missing = (await listRules()).filter((rule) => !stdout.includes(nativePolicies[rule] ?? `/${rule}/`));
    assert.deepEqual(missing, []);
  });

  it("the package names pages in messages by their paths in the project", async () => {
    const { stdout, stderr } = await runPostern("build", "--config", "unconnected.yaml");
    assert.deepEqual(
      [stdout, /; (\S+) says how/.exec(stderr)?.[1]],
      ["", "node_modules/postern/docs/how-to/connect-a-cluster.md"],
    );
  });

  it("the package has a summary of each verb, and explains a rule", async () => {
    const help = await mustWork("--help");
    for (const verb of await listVerbs()) assert.match(help, new RegExp(`^${verb} +[A-Z]`, "m"));
    assert.match(await mustWork("explain", "pod-security", "--config", "all.yaml"), /^pod-security\n/);
  });

  it("the package says in one sentence that an older Node is too old", async () => {
    const older = 'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } });';
    const words = ["--import", `data:text/javascript,${encodeURIComponent(older)}`];
    const program = join(postern, "infra/postern.js");
    const { code, stdout, stderr } = await runProgram([...words, program, "rules"], { cwd: project, env });
    assert.deepEqual([code, stdout], [2, ""]);
    assert.match(stderr, /^Postern needs Node 24, and this is Node 20\.20\.2: install Node 24, or, .*\n$/);
  });
});

const listVerbs = async (): Promise<string[]> =>
  (await readdir(join(postern, "infra/commands")))
    .filter((file) => file.endsWith(".js"))
    .map((file) => basename(file, ".js"));

describe("the pages of the package", () => {
  const isInPackage = (path: string) => createPathExists(postern)(path);
  const isInCheckout = createPathExists(root);
  const listPages = () =>
    globSync("**/*.md", { cwd: postern, exclude: ["infra/commands/new/**"] }).map(
      (page) => [page, readFileSync(join(postern, page), "utf8").replace(/^```[\s\S]*?^```$/gm, "")] as const,
    );

  it("the pages of the package link to files that the package has", () => {
    const pages = listPages();
    assert.ok(pages.length > 80);
    const broken = pages.flatMap(([page, text]) =>
      [...text.matchAll(/\]\((?!https?:)([^)#\s*]+)(?:#[^)\s]*)?\)/g)].flatMap(([, target = ""]) =>
        existsSync(join(postern, dirname(page), target)) ? [] : [`${page}: ${target}`],
      ),
    );
    assert.deepEqual(broken, []);
  });

  it("the pages of the package name files that the package has, and mark those that only the repository has", () => {
    const wrongNames = listPages().flatMap(([page, text]) =>
      [...text.matchAll(/`((?:\.github|docs|functions|infra|lib|test)\/[^`\s<…]+)`( \(in the repository\))?/g)].flatMap(
        ([, path = "", mark]) => {
          if (mark !== undefined) return isInCheckout(path) && !isInPackage(path) ? [] : [`${page}: ${path}${mark}`];
          // These files aren't missing, because a project has its own rules and pipelines.
          const isOfProject = existsSync(join(project, path)) || readersFiles.test(path);
          return isInPackage(path) || isOfProject || page === "CHANGELOG.md" ? [] : [`${page}: ${path}`];
        },
      ),
    );
    assert.deepEqual(wrongNames, []);
    assert.ok(listPages().some(([, text]) => text.includes(repositoryMark)));
  });

  it("the pages of the package name existing files, also in pipelines and in the files of a new project", async () => {
    const files = [
      ...globSync("{serverless.yml,infra/{pipelines,aws/iam}/**/*.{yml,sh}}", { cwd: postern }).map((file) =>
        join(postern, file),
      ),
      join(project, ".github/workflows/postern.yml"),
    ];
    assert.ok(files.length > 8);
    const namedFiles = files.flatMap((file) =>
      [...readFileSync(file, "utf8").matchAll(/(?<![\w/-])(?:node_modules\/postern\/)?infra\/[\w./-]*[\w/]/g)].map(
        ([path]) => ({ file, path }),
      ),
    );
    assert.ok(namedFiles.length > 10);
    assert.deepEqual(
      namedFiles.filter(({ path }) => !existsSync(join(project, path))),
      [],
    );
  });

  it("the pages of the package name all commands that a project has, and no other commands", async () => {
    const table =
      (await readFile(join(postern, "docs/start/project.md"), "utf8")).split("| where |")[1]?.split("\n\n")[0] ?? "";
    const rows = [...table.matchAll(/^\| ([a-z ]+) \| (.*) \|(.*)\|$/gm)].map(([, where, verbs = "", npm = ""]) => {
      const listCode = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, word]) => word);
      return [where, listCode(verbs), listCode(npm)];
    });
    const verbs = await listVerbs();
    const allVerbs = globSync("infra/commands/*.ts", { cwd: root }).map((file) => basename(file, ".ts"));
    const readScripts = async (packageFolder: string): Promise<string[]> =>
      Object.keys(JSON.parse(await readFile(join(packageFolder, "package.json"), "utf8")).scripts);
    const scripts = await readScripts(project);
    const checkoutScripts = (await readScripts(root)).filter((name) => !scripts.includes(name));
    const runLines = checkoutScripts.map((name) => `run ${name}`);
    const projectVerbs = ["upgrade"];
    assert.deepEqual(rows, [
      ["in a project and in a checkout", verbs.filter((verb) => !projectVerbs.includes(verb)).sort(), scripts.sort()],
      ["only in a project", projectVerbs, []],
      ["only in a checkout", allVerbs.filter((verb) => !verbs.includes(verb)).sort(), runLines.sort()],
    ]);
  });
});
