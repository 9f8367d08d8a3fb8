import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { Complaint } from "../cli/complaint.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Writes the client's type declarations and the Kubernetes types that they import. `entries` maps module names to
 * source files.
 */
export const writeClientTypeDeclarations = async (folder: string, entries: Record<string, string>): Promise<void> => {
  const own = await mkdtemp(join(tmpdir(), "postern-types-"));
  try {
    const config = join(own, "tsconfig.json");
    const compilerOptions = {
      declaration: true,
      emitDeclarationOnly: true,
      noEmit: false,
      rootDir: root,
      outDir: join(own, "out"),
      typeRoots: [join(root, "node_modules/@types")],
    };
    const tsconfig = {
      extends: join(root, "tsconfig.json"),
      compilerOptions,
      include: [],
      files: Object.values(entries).map((file) => join(root, file)),
    };
    await writeFile(config, JSON.stringify(tsconfig));
    const compiler = createRequire(import.meta.url).resolve("typescript/package.json");
    const tsc = join(dirname(compiler), "bin/tsc");
    // tsc writes the types even if it finds errors, which `npm run check` reports.
    const output = await new Promise<string>((resolve) =>
      execFile(process.execPath, [tsc, "-p", config], (_, stdout) => resolve(stdout)),
    );
    const types = await collectDeclarations(join(own, "out"), Object.values(entries));
    if (types.size === 0) throw new Complaint(`the client's types can't be written: ${output.split("\n")[0]}`);
    for (const [name, file] of Object.entries(entries))
      types.set(`${name}.d.ts`, `export * from "./${file.replace(/\.ts$/, ".js")}";\n`);
    types.set("rule.d.ts", ruleType);
    for (const [file, text] of types) {
      const place = join(folder, file);
      await mkdir(dirname(place), { recursive: true });
      await writeFile(place, text);
    }
  } finally {
    await rm(own, { recursive: true, force: true });
  }
};

const ruleType = `import type { Rule } from "./lib/rule.js";\ndeclare const rule: Rule;\nexport default rule;\n`;

/** Returns the type declarations (.d.ts) that files import, at any depth, with imports as paths in the package. */
const collectDeclarations = async (out: string, files: string[]): Promise<Map<string, string>> => {
  const kinds = dirname(createRequire(import.meta.url).resolve("kubernetes-types/package.json"));
  const placeOf = (file: string) =>
    file.startsWith("kubernetes/") ? join(kinds, relative("kubernetes", file)) : join(out, file);
  const types = new Map<string, string>();
  const queue = files.map((file) => file.replace(/\.ts$/, ".d.ts"));
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (types.has(file)) continue;
    const from = dirname(file);
    const text = await readFile(placeOf(file), "utf8");
    const moved = text.replaceAll(/(from |import\()"([^"]+)"/g, (match, word, specifier: string) => {
      const target = specifier.startsWith("kubernetes-types/")
        ? `kubernetes/${specifier.slice("kubernetes-types/".length)}`
        : specifier.startsWith("#")
          ? specifier.slice(1)
          : specifier.startsWith(".")
            ? join(from, specifier).replaceAll("\\", "/")
            : undefined;
      if (target === undefined) return match;
      const plain = target.replace(/(\.d)?\.(ts|js)$/, "");
      queue.push(`${plain}.d.ts`);
      const path = relative(from, plain).replaceAll("\\", "/");
      return `${word}"${path.startsWith(".") ? path : `./${path}`}.js"`;
    });
    types.set(file, moved);
  }
  return types;
};
