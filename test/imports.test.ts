import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { glob, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { readRows } from "./rows.ts";

interface ImportRow {
  file: string;
  specifier: string;
  isAllowed: boolean;
}
const root = fileURLToPath(new URL("..", import.meta.url));

/** In the table of infra/README.md, this text means all folders of the table. */
const allFolders = "all of these";
/** The folders that each folder of infra may import, as the table in infra/README.md says. */
const allowedFolders = new Map(
  [...(await readFile(join(root, "infra/README.md"), "utf8")).matchAll(/^\| `(\w+)` \| .* \|(.*)\|$/gm)].map(
    ([, folder = "", imports = ""]) => [folder, imports.split(",").map((name) => name.trim().replaceAll("`", ""))],
  ),
);

/** Reports whether a file of infra may import a module, which `specifier` names. */
const mayImport = (file: string, specifier: string): boolean => {
  const isInCheckout = /^(\.|#(lib|infra)\/)/.test(specifier);
  // Every file may import packages, except Middy's.
  if (!isInCheckout) return !specifier.startsWith("@middy/");
  const path = specifier.startsWith("#") ? specifier.slice(1) : join(dirname(file), specifier);
  // Every file may import files of lib.
  if (path.startsWith("lib/") || path === "package.json") return true;
  const { 1: importer = "" } = file.split("/");
  const { 1: imported = "" } = path.split("/");
  // Outside of infra and lib, the table allows some folders of rules, such as functions/workload-quota.
  if (!path.startsWith("infra/")) return allowedFolders.get(importer)?.includes(dirname(path)) ?? false;
  // Files directly in infra, such as infra/main.ts, aren't in the table.
  const isDirectlyInInfra = file.split("/").length === 2;
  if (isDirectlyInInfra) return imported === "cli" || path === "infra/node.js";
  // Files in a folder of infra may import their own folder and those of the table.
  const allowed = allowedFolders.get(importer) ?? [];
  if (imported === importer || allowed.includes(imported)) return true;
  return allowed.includes(allFolders) && allowedFolders.has(imported);
};

const listSpecifiers = (code: string): string[] =>
  [...code.matchAll(/(?:^import|\bfrom|\bimport\()\s*"([^"]+)"/gm)].map(([, specifier = ""]) => specifier);

/** Lints files that only import types, by these specifiers. Returns the rules of biome.json that each file breaks. */
const lintTypeImports = async (files: Map<string, string[]>): Promise<Map<string, string[]>> => {
  const copy = await mkdtemp(join(tmpdir(), "postern-imports-"));
  try {
    const { vcs: _, $schema: __, ...config } = JSON.parse(await readFile(join(root, "biome.json"), "utf8"));
    const code = [...files].map(([file, imports]) => {
      const lines = imports.map((specifier, index) => `import type { T as T${index} } from "${specifier}";\n`);
      return [
        file,
        `${lines.join("")}export type T = [${lines.map((_, index) => `T${index}`).join(", ")}];\n`,
      ] as const;
    });
    const manifest = await readFile(join(root, "package.json"), "utf8");
    for (const [file, content] of [
      ...code,
      ["biome.json", JSON.stringify(config)],
      ["package.json", manifest],
    ] as const) {
      await mkdir(dirname(join(copy, file)), { recursive: true });
      await writeFile(join(copy, file), content);
    }
    const biome = join(root, "node_modules/@biomejs/biome/bin/biome");
    const lints = ["--only=noRestrictedImports", "--only=noImportCycles"];
    const words = [biome, "lint", ...lints, "--reporter=json", "--max-diagnostics=none", "."];
    const output = await new Promise<string>((resolve) =>
      execFile(process.execPath, words, { cwd: copy, maxBuffer: 1e9 }, (_, stdout) => resolve(stdout)),
    );
    const found: { category: string; location: { path: string } }[] = JSON.parse(output).diagnostics;
    const byFile = Map.groupBy(found, ({ location }) => location.path);
    // A category is such as lint/style/noRestrictedImports.
    const listRules = (some: typeof found) => some.map(({ category }) => category.split("/").at(-1) ?? "");
    return new Map([...byFile].map(([path, diagnostics]) => [path, listRules(diagnostics)]));
  } finally {
    await rm(copy, { recursive: true });
  }
};

describe("an import", () => {
  const rows = readRows<ImportRow[]>(import.meta.filename);
  const ofInfra = rows.filter(({ file }) => file.startsWith("infra/"));
  const ofOthers = rows.filter(({ file }) => !file.startsWith("infra/"));
  /** The rules of biome.json that each file breaks. */
  let brokenRules = new Map<string, string[]>();
  before(async () => {
    const circular: [file: string, imports: string[]][] = [
      ["lib/rule.ts", ["#lib/one.ts"]],
      ["lib/one.ts", ["postern/rule"]],
    ];
    const others = ofOthers.map(({ file, specifier }): (typeof circular)[number] => [file, [specifier]]);
    brokenRules = await lintTypeImports(new Map([...others, ...circular]));
  });

  it("an import in a file of infra is one that the table in infra/README.md allows", async () => {
    const files = await Array.fromAsync(glob("infra/**/*.{ts,js}", { cwd: root }));
    const found = await Promise.all(
      files
        .filter((file) => !/\.test\.ts$|node_modules|^infra\/(create|pipelines|commands\/new)\/|\/bundle\//.test(file))
        .map(async (file) =>
          listSpecifiers(await readFile(join(root, file), "utf8"))
            .filter((specifier) => !mayImport(file, specifier))
            .map((specifier) => `${file} imports ${specifier}`),
        ),
    );
    assert.ok(allowedFolders.size > 20 && found.length > 200);
    assert.deepEqual(found.flat(), []);
  });

  it("an import in a file of infra is refused unless the table allows it", () => {
    assert.deepEqual(
      ofInfra.filter(({ file, specifier, isAllowed }) => mayImport(file, specifier) !== isAllowed),
      [],
    );
  });

  it("an import in a file of lib or functions is refused unless biome.json allows it", () => {
    const isRefused = ({ file }: ImportRow) => brokenRules.get(file)?.includes("noRestrictedImports") === true;
    assert.deepEqual(
      ofOthers.filter((row) => isRefused(row) === row.isAllowed).map(({ file, specifier }) => `${file} ${specifier}`),
      [],
    );
  });

  it("an import of types is refused if it is circular, also if one of the files uses the package's name", () => {
    assert.ok(brokenRules.get("lib/rule.ts")?.includes("noImportCycles"));
  });
});
