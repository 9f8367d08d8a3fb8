import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parse } from "acorn";
import { type Plugin, transform } from "esbuild";
import type { FunctionDeclaration } from "#lib/cel/functions.ts";
import { packageRoot } from "../cli/roots.ts";

/** The functions that macros call, by the macro; all names without the parts before a dot. */
const functionsOfMacros: Readonly<Record<string, readonly string[]>> = {
  optMap: ["of", "none", "hasValue", "value"],
  optFlatMap: ["none", "hasValue", "value"],
  sortBy: ["@sortByAssociatedKeys"],
  transformMap: ["@mapInsert"],
  transformMapEntry: ["@mapInsert"],
};

/** Returns the names of all functions that CEL expressions in settings may call, without the parts before a dot. */
const listCalledFunctions = (settings: unknown): string[] => {
  if (typeof settings === "string") {
    // Between a name and its parenthesis there may be spaces and comments.
    const names = Array.from(settings.matchAll(/\b([A-Za-z_]\w*)(?:\s|\/\/.*)*\(/g), ([, name = ""]) => name);
    return names.flatMap((name) => [name, ...(functionsOfMacros[name] ?? [])]);
  }
  return typeof settings === "object" && settings !== null ? Object.values(settings).flatMap(listCalledFunctions) : [];
};

/** The names of operators, and of what loops call. */
const operator = /^[-!_]|^@(?:in|not_strictly_false)$/;

/** Leaves out the functions of CEL that no expression in a bundle's settings calls, with the code that only they need. */
export const createCelPlugin = (settings: unknown): Plugin => ({
  name: "cel-functions",
  setup({ onLoad, onResolve }) {
    const called = new Set(listCalledFunctions(settings));
    const isNeeded = ({ name }: FunctionDeclaration) =>
      operator.test(name) || called.has(name.slice(name.lastIndexOf(".") + 1));
    const folder = join(packageRoot, "lib/cel/");
    // No file of this folder acts when it is imported.
    onResolve({ filter: /^\.\.?\// }, ({ path, importer, resolveDir }) =>
      importer.startsWith(folder) ? { path: join(resolveDir, path), sideEffects: false } : undefined,
    );
    onLoad({ filter: /[\\/]lib[\\/]cel[\\/]libraries[\\/][\w-]+\.[jt]s$/ }, async ({ path }) => {
      const { code } = await transform(await readFile(path, "utf8"), { loader: "ts", target: "node24" });
      const declared: Record<string, readonly FunctionDeclaration[]> = await import(pathToFileURL(path).href);
      const { body } = parse(code, { ecmaVersion: "latest", sourceType: "module" });
      for (const statement of body) {
        const declaration = statement.type === "ExportNamedDeclaration" ? statement.declaration : undefined;
        const [list] = declaration?.type === "VariableDeclaration" ? declaration.declarations : [];
        if (list?.id.type !== "Identifier" || !list.id.name.endsWith("Functions")) continue;
        if (list.init?.type !== "ArrayExpression")
          throw new Error(`${list.id.name} of ${path} is no list of functions`);
        const functions = declared[list.id.name] ?? [];
        // A spread element has all functions that follow.
        const kept = list.init.elements.filter((element, index) =>
          functions.slice(index, element?.type === "SpreadElement" ? undefined : index + 1).some(isNeeded),
        );
        const text = kept.map((element) => element && code.slice(element.start, element.end)).join(", ");
        return { contents: `${code.slice(0, list.init.start)}[${text}]${code.slice(list.init.end)}` };
      }
      return { contents: code };
    });
  },
});
