#!/usr/bin/env node
// The package create-postern: `create-postern FOLDER` makes a project with one rule. Every Node.js from version 20 on
// can run this file. The folder template/ of the package contains the rule that `postern new` makes, and the pipeline
// for GitHub. In a package made by `npm run pack`, template/ also contains the package postern, which the project
// installs.
import { existsSync } from "node:fs";
import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const { argv, cwd, env, stderr, stdout } = process;
/** The package manager that started this program: npm, pnpm or yarn. */
const manager = env.npm_config_user_agent?.split("/")[0] ?? "npm";
const rule = "require-owner-label";
const template = fileURLToPath(new URL("template/", import.meta.url));

/** Returns the texts of the files of a new project that aren't in the template, by their paths. */
const buildFiles = ({ name, dependencies }) => ({
  "package.json": toJson({
    name,
    private: true,
    type: "module",
    engines: { node: ">=24" },
    scripts: { start: "postern serve", test: "postern test", check: "tsc && postern test && postern build --to dist" },
    devDependencies: dependencies,
    allowScripts,
  }),
  "postern.yaml": `# yaml-language-server: $schema=.postern/postern.schema.json
# The rules that are on, with their modes, exemptions and settings: those of functions/, and all that npx postern rules
# lists. npx postern explain RULE shows one.
rules:
  ${rule}:
`,
  "tsconfig.json": toJson({
    compilerOptions: {
      target: "esnext",
      module: "nodenext",
      strict: true,
      noEmit: true,
      allowImportingTsExtensions: true,
      erasableSyntaxOnly: true,
      verbatimModuleSyntax: true,
      skipLibCheck: true,
    },
    include: ["functions"],
  }),
  ".gitignore": ["node_modules/", "dist/", ".serverless*", ".postern/", "postern-check/", "/recordings/", ""].join(
    "\n",
  ),
});

/**
 * Packages whose install scripts aren't needed. If a project doesn't refuse install scripts, npm prints warnings, and
 * pnpm fails.
 */
const allowScripts = { "es5-ext": false, esbuild: false };

/** The files that only one package manager reads. */
const managerFiles = {
  pnpm: { "pnpm-workspace.yaml": `allowBuilds: ${JSON.stringify(allowScripts)}\n` },
  // Without a lock file, Yarn would treat the folder as a part of a project in a parent folder.
  yarn: { ".yarnrc.yml": "nodeLinker: node-modules\nenableScripts: false\n", "yarn.lock": "" },
};

const toJson = (value) => `${JSON.stringify(value, null, 2)}\n`;

/** Makes a project in a folder. If the folder exists, it must be empty. */
const createProject = async (folder) => {
  await mkdir(folder, { recursive: true });
  if ((await readdir(folder)).some((file) => file !== ".git")) throw new Error("it is not empty");
  const { config } = JSON.parse(await readFile(new URL("package.json", import.meta.url), "utf8"));
  const name = basename(folder)
    .toLowerCase()
    .replace(/^[._]+|[^a-z0-9._-]/g, "-");
  await cp(join(template, "rule"), join(folder, "functions", rule), { recursive: true });
  const page = join(folder, "functions", rule, "README.md");
  await writeFile(page, (await readFile(page, "utf8")).replace("NAME", rule));
  const packages = join(template, "packages");
  if (existsSync(packages)) await cp(packages, folder, { recursive: true });
  await cp(join(template, "github.yml"), join(folder, ".github/workflows/postern.yml"));
  const files = { ...buildFiles({ name, dependencies: config.dependencies }), ...managerFiles[manager] };
  for (const [file, text] of Object.entries(files)) await writeFile(join(folder, file), text);
};

const [word, ...rest] = argv.slice(2);
if (word === undefined || word.startsWith("-") || rest.length > 0) {
  stderr.write("name one folder for the new project: create-postern my-rules\n");
  process.exitCode = 2;
} else {
  try {
    await createProject(resolve(cwd(), word));
    stdout.write(`Made a project with one rule, functions/${rule}, in ${word}. Go on with:

  cd ${word}
  ${manager} install
  ${manager} test

${manager} run check also checks types and builds. ${manager} start serves the rule, and npx postern new NAME makes another one.
`);
  } catch (error) {
    stderr.write(`${word} can't become a project: ${error.message}\n`);
    process.exitCode = 1;
  }
}
