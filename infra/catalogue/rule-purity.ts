import { isBuiltin } from "node:module";
import { join } from "node:path";
import type { AnyNode } from "acorn";
import { type BuildFailure, build, type Metafile } from "esbuild";
import { getProjectRoot, moduleExtension } from "../cli/roots.ts";
import { getName, parseSourceFile, type RuleMistake, walkNodes } from "./rule-source.ts";
import type { RuleFolder } from "./sources.ts";

/** The globals that rules may use, because they depend only on their arguments. A global of a later Node is refused. */
const pureGlobals = new Set(
  `AggregateError Array ArrayBuffer BigInt BigInt64Array BigUint64Array Boolean Buffer DataView Error EvalError
  Float16Array Float32Array Float64Array Infinity Int16Array Int32Array Int8Array Intl Iterator JSON Map NaN Number Object
  Promise Proxy RangeError ReferenceError Reflect RegExp Set String SuppressedError Symbol SyntaxError TextDecoder
  TextEncoder TypeError URIError URL URLPattern URLSearchParams Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap
  WeakSet atob btoa decodeURI decodeURIComponent encodeURI encodeURIComponent escape isFinite isNaN parseFloat parseInt
  structuredClone undefined unescape`.split(/\s+/),
);

/**
 * In a parsed file, esbuild adds this prefix to globals. A local variable of the same name stays as it is, so that the
 * two can be distinguished.
 */
const globalPrefix = "POSTERN_GLOBAL_";
const prefixedGlobals = Object.fromEntries(
  Object.getOwnPropertyNames(globalThis)
    .concat("require", "module", "__dirname", "__filename")
    .filter((name) => !pureGlobals.has(name))
    .map((name) => [name, `${globalPrefix}${name}`]),
);

/** What a rule must use in place of globals and Node's modules of these names, such as `now` of its second argument. */
const substitutes: [names: RegExp, substitute: string][] = [
  [
    /^(fetch|WebSocket|EventSource|Request|Response|node:(https?|http2|net|tls|dgram|dns|quic))$/,
    "a rule reaches services only by its needs: declare https() of postern/needs",
  ],
  [/^node:(fs|sqlite)$/, "a rule has no files: declare a setting for what they hold"],
  [
    /^(process|node:(process|os|child_process))$/,
    "a rule has no process and no environment: declare a setting instead",
  ],
  [/^(console|node:console)$/, "a rule has no log: return { warnings: […] } or { audit: { … } }"],
  [/^(Date|[Pp]erformance\w*|node:perf_hooks)/, "a rule has no clock: take the member now of the second argument"],
  [
    /^((set|clear)(Timeout|Interval|Immediate)|queueMicrotask|node:timers)$/,
    "a rule has no timers: await its needs, or do the work in reconcile",
  ],
  [/^(Math|[Cc]rypto)/, "a rule answers the same review alike: take request.uid for a value that differs"],
];

const describeSubstitute = (name: string): string =>
  substitutes.find(([names]) => names.test(name))?.[1] ??
  "a rule has only its arguments, its needs, postern/… and packages";

/** The modules of Node that packages may import, because they reach nothing outside the process. */
const moduleAllowedInPackages =
  /^(node:)?(assert|async_hooks|buffer|console|constants|crypto|diagnostics_channel|events|os|path|perf_hooks|process|punycode|querystring|stream|string_decoder|sys|timers|tty|url|util|v8|zlib)(\/|$)/;

/**
 * Finds what the files of a rule must not use: globals such as process, and modules of Node, also in packages that the
 * rule imports. Only files that the rule imports are checked, so tests are not.
 */
export const findImpurities = async ({ folder, place, file }: RuleFolder): Promise<RuleMistake[]> => {
  const metafile = await readImports(join(folder, file)).catch((failure: BuildFailure) => failure);
  if ("errors" in metafile)
    return metafile.errors.map(({ text, location }) => ({
      file: location?.file ?? `${place}/${file}`,
      line: location?.line ?? 1,
      sentence: `can't be bundled: ${text}`,
    }));
  const { inputs, outputs } = metafile;
  const entry = Object.values(outputs)[0]?.entryPoint ?? "";
  const files = listOwnFiles(entry, inputs);
  const found = await Promise.all(files.map((name) => findImpuritiesOfFile(name, inputs)));
  return found.flat();
};

/** Lets esbuild find all files that a file imports. */
const readImports = async (file: string): Promise<Metafile> => {
  const { metafile } = await build({
    entryPoints: [file],
    absWorkingDir: getProjectRoot(),
    bundle: true,
    write: false,
    metafile: true,
    outdir: "out",
    format: "esm",
    platform: "node",
    target: "node24",
    // An empty tsconfig makes esbuild ignore imports of types, whatever the project's tsconfig.json says.
    tsconfigRaw: {},
    // Postern's library isn't checked. In Postern's repository, rules may import it as #lib, too.
    external: ["postern", "postern/*", ...(moduleExtension === ".ts" ? ["#lib/*"] : [])],
    logLevel: "silent",
  });
  return metafile;
};

type ImportedFiles = Metafile["inputs"];
type Import = ImportedFiles[string]["imports"][number];

/** Reports whether an import is of another file of the project, and not of a package. */
const isOfProject = ({ original = "", external }: Import) => !external && /^[./#]/.test(original);

/** Lists the files of the project that a file imports, directly or through others. */
const listOwnFiles = (entry: string, inputs: ImportedFiles): string[] => {
  const files = new Set([entry]);
  // The loop also visits files that it adds to the set.
  for (const name of files)
    for (const found of inputs[name]?.imports ?? []) if (isOfProject(found)) files.add(found.path);
  return [...files].filter((name) => /\.[cm]?[jt]sx?$/.test(name));
};

const findImpuritiesOfFile = async (file: string, inputs: ImportedFiles): Promise<RuleMistake[]> => {
  // In the parsed program, each global that rules must not use has `globalPrefix` before its name.
  const { program, findLine } = await parseSourceFile(join(getProjectRoot(), file), prefixedGlobals);
  return [...walkNodes(program)].flatMap(([node, parent]) => {
    const sentence = describeGlobal(node, parent) ?? describeImport(node, file, inputs);
    return sentence === undefined ? [] : [{ file, line: findLine(node), sentence }];
  });
};

/** The globals of which rules may use only some members: those that match the pattern. */
const partlyPure: Record<string, RegExp> = { Date: /^(UTC|parse|prototype)$/, Math: /^(?!random$)/ };

/**
 * Describes a node that uses a global that rules must not use; undefined for other nodes. In the parsed program, the
 * names of such globals begin with `globalPrefix`.
 */
const describeGlobal = (node: AnyNode, parent: AnyNode): string | undefined => {
  if (node.type === "MetaProperty" && node.meta.name === "import")
    return `uses import.meta, but ${describeSubstitute("import.meta")}`;
  if (node.type !== "Identifier" || !node.name.startsWith(globalPrefix)) return undefined;
  const name = node.name.slice(globalPrefix.length);
  const pure = partlyPure[name];
  const members = pure ? listMembers(node, parent) : [];
  const refused = members.find((member) => !pure?.test(member));
  if (members.length > 0 && refused === undefined) return undefined;
  const isNew = parent.type === "NewExpression" && parent.callee === node;
  // `new Date(time)` and `instanceof Date` don't depend on the present time.
  if (name === "Date" && (isNew ? parent.arguments.length > 0 : isInstanceOf(parent))) return undefined;
  const used = refused === undefined ? name : `${name}.${refused}`;
  return `uses ${isNew ? `new ${name}()` : used}, but ${describeSubstitute(name)}`;
};

const isInstanceOf = (node: AnyNode) => node.type === "BinaryExpression" && node.operator === "instanceof";

/**
 * Returns which members of a global are used: `UTC` of Date.UTC, or `a` and `b` of `const { a, b } = Math`. The list is
 * empty if the code uses the global itself, or members that can't be known.
 */
const listMembers = (node: AnyNode, parent: AnyNode): string[] => {
  const isObject = parent.type === "MemberExpression" && parent.object === node;
  if (isObject) return [getMemberName(parent.property, parent.computed) ?? []].flat();
  if (parent.type !== "VariableDeclarator" || parent.id.type !== "ObjectPattern") return [];
  const names = parent.id.properties.map((property) =>
    property.type === "Property" ? getMemberName(property.key, property.computed) : undefined,
  );
  return names.some((name) => name === undefined) ? [] : names.filter((name) => name !== undefined);
};

const getMemberName = (key: AnyNode, isComputed: boolean): string | undefined =>
  isComputed && key.type !== "Literal" ? undefined : getName(key);

/** Describes an import that leads to a module that rules must not use; undefined if the node is none. */
const describeImport = (node: AnyNode, file: string, inputs: ImportedFiles): string | undefined => {
  if (!("source" in node) || node.source == null) return undefined;
  const specifier = node.source.type === "Literal" ? node.source.value : undefined;
  if (typeof specifier !== "string")
    return "imports a module by a computed name, but its name must be a text in quotes";
  const imported = inputs[file]?.imports.find(({ path, original = path }) => original === specifier);
  const chain = imported && !isOfProject(imported) ? findRefusedModule(imported, inputs) : undefined;
  if (chain === undefined) return undefined;
  const name = chain.at(-1)?.replace(/^node:|\/.*$/g, "");
  return `imports ${chain.join(" → ")}, but ${describeSubstitute(`node:${name}`)}`;
};

/** Returns the shortest chain of imports to a refused module of Node, for instance `["a-package", "node:fs"]`. */
const findRefusedModule = (imported: Import, inputs: ImportedFiles): string[] | undefined => {
  if (imported.external) return isBuiltin(imported.path) ? [imported.path] : undefined;
  const chains = new Map([[imported.path, [imported.original ?? imported.path]]]);
  // The loop also visits entries that it adds to the map.
  for (const [file, chain] of chains)
    for (const { path, original = path, external } of inputs[file]?.imports ?? []) {
      if (external && isBuiltin(path) && !moduleAllowedInPackages.test(path)) return [...chain, path];
      // A chain doesn't name files of the same package.
      if (!external && !chains.has(path)) chains.set(path, /^[.#]/.test(original) ? chain : [...chain, original]);
    }
  return undefined;
};
