import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
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
const text = await readFile(join(root, "infra/README.md"), "utf8");
const rows = [...text.matchAll(/^\| `(\w+)` \| .* \|(.*)\|$/gm)].map(([, folder = "", imports = ""]) => ({
  folder,
  imports,
}));
const folders = rows.map(({ folder }) => folder);
const listAllowedFolders = ({ folder, imports }: { folder: string; imports: string }) =>
  imports.trim() === "all of these" ? folders : [folder, ...imports.split(",").map((name) => name.trim())];

/** Lints files that contain only these imports, and returns the broken rules of biome.json for each file. */
const lint = async (files: Map<string, string[]>): Promise<Map<string, string[]>> => {
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
    const words = [
      biome,
      "lint",
      "--only=noRestrictedImports",
      "--only=noImportCycles",
      "--reporter=json",
      "--max-diagnostics=none",
      ".",
    ];
    const output = await new Promise<string>((resolve) =>
      execFile(process.execPath, words, { cwd: copy, maxBuffer: 1e9 }, (_, stdout) => resolve(stdout)),
    );
    const found: { category: string; location: { path: string } }[] = JSON.parse(output).diagnostics;
    const broken = Map.groupBy(found, ({ location }) => location.path);
    return new Map(
      [...broken].map(([path, all]) => [path, all.map(({ category }) => category.split("/").at(-1) ?? "")]),
    );
  } finally {
    await rm(copy, { recursive: true });
  }
};

describe("an import", () => {
  const table: ImportRow[] = [
    ...readRows<ImportRow[]>(import.meta.filename),
    ...rows.flatMap((row) =>
      folders.flatMap((to): ImportRow[] =>
        to === row.folder
          ? []
          : ["../", "#infra/"].map((way, index) => ({
              file: `infra/${row.folder}/${to}${index}.ts`,
              specifier: `${way}${to}/any.ts`,
              isAllowed: listAllowedFolders(row).includes(to),
            })),
      ),
    ),
  ];
  let broken = new Map<string, string[]>();
  before(async () => {
    const circular = [
      ["lib/rule.ts", ["#lib/one.ts"]],
      ["lib/one.ts", ["postern/rule"]],
    ] as const;
    broken = await lint(
      new Map([
        ...table.map(({ file, specifier }) => [file, [specifier]] as [string, string[]]),
        ...circular.map(([file, all]) => [file, [...all]] as [string, string[]]),
      ]),
    );
  });

  it("is refused unless the table in infra/README.md has it", () => {
    const isRefused = ({ file }: ImportRow) => broken.get(file)?.includes("noRestrictedImports") === true;
    assert.ok(folders.length > 20);
    assert.deepEqual(
      table.filter((row) => isRefused(row) === row.isAllowed).map(({ file, specifier }) => `${file} ${specifier}`),
      [],
    );
  });

  it("is refused if it is circular, also for types and imports by the package's name", () => {
    assert.ok(broken.get("lib/rule.ts")?.includes("noImportCycles"));
  });
});
