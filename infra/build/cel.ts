import { readFile } from "node:fs/promises";
import { dirname, extname } from "node:path";
import { pathToFileURL } from "node:url";
import { parse } from "acorn";
import { type Plugin, transform } from "esbuild";
import type { EncodedChecks } from "#lib/cel/checked-expressions.ts";
import type { FunctionDeclaration } from "#lib/cel/functions.ts";

/** A placeholder in a bundle's code. The checked expressions replace it, as JSON. */
export const expressionsMark = "POSTERN EXPRESSIONS";

/** Returns all strings in a JSON value, for instance the names of the overloads that checked expressions call. */
export const listStrings = (value: unknown): string[] => {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(listStrings) : [];
};

/**
 * Reduces the CEL library in a bundle. The expressions are parsed and checked at build time, and replace
 * `expressionsMark` in the bundle. So it has no parser, no checker, and no functions that no expression calls.
 */
export const createCelPlugin = (checks: EncodedChecks): Plugin => ({
  name: "checked-expressions",
  setup({ onLoad }) {
    // The encoded expressions contain the id of each overload that they call. `repeated` has their common parts.
    const strings = new Set(listStrings([checks.repeated, checks.results]));
    const isCalled = ({ overloads }: FunctionDeclaration) => overloads.some(({ id }) => strings.has(id));
    /** Returns a list's source without functions that no expression calls. Declarations of a name are one function. */
    const reduceList = (
      code: string,
      elements: readonly ({ type: string; start: number; end: number } | null)[],
      functions: readonly FunctionDeclaration[],
    ): string => {
      const called = new Set(functions.filter(isCalled).map(({ name }) => name));
      // A spread element, such as `...listFunctions`, is the last one: it stands for all functions from its index on.
      const kept = elements.filter((element, index) =>
        functions
          .slice(index, element?.type === "SpreadElement" ? undefined : index + 1)
          .some(({ name }) => called.has(name)),
      );
      return `[${kept.map((element) => element && code.slice(element.start, element.end)).join(", ")}]`;
    };
    onLoad({ filter: /[\\/]lib[\\/]cel[\\/]expression-check\.[jt]s$/ }, ({ path }) => ({
      contents: `import { createCheckLookup } from "./checked-expressions${extname(path)}";
        export const { checkExpression, createDeclarations } = createCheckLookup(() => JSON.parse("${expressionsMark}"));`,
      resolveDir: dirname(path),
    }));
    onLoad({ filter: /[\\/]lib[\\/]cel[\\/]libraries[\\/](kubernetes[\\/])?[\w-]+\.[jt]s$/ }, async ({ path }) => {
      const { code } = await transform(await readFile(path, "utf8"), { loader: "ts", target: "node24" });
      const declared: Record<string, readonly FunctionDeclaration[]> = await import(pathToFileURL(path).href);
      const edits: Edit[] = [];
      for (const statement of parse(code, { ecmaVersion: "latest", sourceType: "module" }).body) {
        const declaration = statement.type === "ExportNamedDeclaration" ? statement.declaration : statement;
        // esbuild keeps an unused class with a superclass, unless the class is the value of a pure call.
        if (declaration?.type === "ClassDeclaration" && declaration.superClass)
          edits.push(
            { start: declaration.start, end: declaration.start, text: `const ${declaration.id.name} = ${pure}(() => ` },
            { start: declaration.end, end: declaration.end, text: ")();" },
          );
        if (declaration?.type !== "VariableDeclaration") continue;
        for (const { id, init } of declaration.declarations) {
          const name = id.type === "Identifier" ? id.name : "";
          if (init?.type === "CallExpression" || init?.type === "NewExpression")
            edits.push({ start: init.start, end: init.start, text: pure });
          if (!name.endsWith("Functions") || !declared[name]) continue;
          if (init?.type !== "ArrayExpression") throw new Error(`${name} of ${path} is no list of functions`);
          edits.push({ start: init.start, end: init.end, text: reduceList(code, init.elements, declared[name]) });
        }
      }
      return { contents: applyEdits(code, edits) };
    });
  },
});

/** Before a call, this comment lets esbuild remove the call if its value isn't used. */
const pure = "/* @__PURE__ */ ";

/** A replacement of a part of a text. */
interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

const applyEdits = (code: string, edits: readonly Edit[]): string =>
  edits.reduceRight((edited, { start, end, text }) => edited.slice(0, start) + text + edited.slice(end), code);
