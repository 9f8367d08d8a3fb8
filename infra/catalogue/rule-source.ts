// This file parses the source of rules, to find lines of members in a definition, and globals and modules in use.
import { readFile } from "node:fs/promises";
import { SourceMap } from "node:module";
import { extname, join } from "node:path";
import type { AnyNode, Node, Program } from "acorn";
import type { Loader } from "esbuild";
import { isMap, toMap } from "#lib/json.ts";
import type { RuleFolder } from "./sources.ts";

/** The path of a member or an element in the definition of a rule, such as `["match", 0, "operations"]`. */
export type MemberPath = readonly (string | number)[];

/** A mistake in the definition of a rule. */
export interface DefinitionMistake {
  path: MemberPath;
  sentence: string;
  /** True if it may be right in some clusters. */
  isWarning?: boolean;
}

/** A mistake in a file of a rule. */
export interface RuleMistake extends Omit<DefinitionMistake, "path"> {
  /** The path of the file, relative to the project's folder. */
  file: string;
  line: number;
  /** The member of the rule's definition that has the mistake, such as match. */
  member?: string | number | undefined;
}

export const formatRuleMistake = ({ file, line, sentence }: RuleMistake): string => `${file}:${line} ${sentence}`;

/** Finds the lines of mistakes in the definition of a rule. */
export const locateMistakes = async (
  { folder, place, file }: Pick<RuleFolder, "folder" | "place" | "file">,
  mistakes: readonly DefinitionMistake[],
): Promise<RuleMistake[]> => {
  if (mistakes.length === 0) return [];
  const findLine = await createMemberLineFinder(join(folder, file));
  return mistakes.map(({ path, ...mistake }) => {
    return { file: `${place}/${file}`, line: findLine(path), member: path[0], ...mistake };
  });
};

/** The syntax of a file without its types. */
export interface SourceFile {
  program: Program;
  /** Returns the line of a node in the file. */
  findLine(node: Node): number;
}

/** Parses a file of TypeScript or JavaScript. Globals in the file are renamed as `globals` says. */
export const parseSourceFile = async (file: string, globals: Record<string, string> = {}): Promise<SourceFile> => {
  // These packages are imported only here, because most commands don't need them.
  const [{ transform }, { parse }] = await Promise.all([import("esbuild"), import("acorn")]);
  const { code, map } = await transform(await readFile(file, "utf8"), {
    loader: extname(file).replace(/^\.[cm]?/, "") as Loader,
    define: globals,
    sourcemap: "external",
    target: "node24",
  });
  const sourceMap = new SourceMap(JSON.parse(map));
  return {
    program: parse(code, { ecmaVersion: "latest", sourceType: "module", locations: true }),
    findLine: ({ loc }) => {
      const { originalLine } = toMap(loc && sourceMap.findEntry(loc.start.line - 1, loc.start.column));
      return Number(originalLine ?? 0) + 1;
    },
  };
};

/** Returns all nodes of a tree in the order of the text, each with its parent. */
export function* walkNodes(node: AnyNode, parent: AnyNode = node): Generator<[AnyNode, AnyNode]> {
  yield [node, parent];
  for (const member of Object.values(node).flat()) if (isNode(member)) yield* walkNodes(member, node);
}

const isNode = (value: unknown): value is AnyNode => isMap(value) && typeof value.type === "string";

/**
 * Returns a function that finds the line of a path in a rule's file. If the file computes the value at the path, it is
 * the line of the nearest parent that is a literal.
 */
const createMemberLineFinder = async (file: string): Promise<(path: MemberPath) => number> => {
  const { program, findLine } = await parseSourceFile(file);
  const statement = program.body.find(({ type }) => type === "ExportDefaultDeclaration");
  const exported = resolveValue(
    statement?.type === "ExportDefaultDeclaration" ? statement.declaration : undefined,
    program,
  );
  return (path) => {
    let place: AnyNode | undefined = exported;
    let value = resolveValue(exported?.type === "CallExpression" ? exported.arguments[0] : exported, program);
    for (const key of path) {
      const [memberPlace, memberValue] = findMember(value, key);
      if (memberPlace === undefined) break;
      place = memberPlace;
      value = resolveValue(memberValue, program);
    }
    return place ? findLine(place) : 1;
  };
};

/** Returns the node where a member or element begins, and its value. */
const findMember = (value: AnyNode | undefined, key: string | number): [AnyNode?, AnyNode?] => {
  if (value?.type === "ArrayExpression") {
    const element = value.elements[Number(key)] ?? undefined;
    return [element, element];
  }
  if (value?.type !== "ObjectExpression") return [];
  const member = value.properties.findLast(
    (property) => property.type === "Property" && !property.computed && getName(property.key) === String(key),
  );
  return member?.type === "Property" ? [member, member.value] : [];
};

/** Returns the key of a member, such as match, from its node: `match: …` has an identifier, `"match": …` a literal. */
export const getName = (node: AnyNode): string | undefined => {
  if (node.type === "Identifier") return node.name;
  return node.type === "Literal" ? String(node.value) : undefined;
};

/** Returns the value of a constant in the file, or the result of a function such as `() => [ … ]`. */
const resolveValue = (node: AnyNode | undefined, program: Program): AnyNode | undefined => {
  if (node?.type === "ArrowFunctionExpression") return node.expression ? node.body : node;
  if (node?.type !== "Identifier") return node;
  const declarations = program.body.flatMap((statement) =>
    statement.type === "VariableDeclaration" ? statement.declarations : [],
  );
  return declarations.find(({ id }) => getName(id) === node.name)?.init ?? node;
};
