import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { createRandom, type Random } from "../../infra/testing/random.ts";
import {
  getDouble,
  isDouble,
  isList,
  isMap,
  toArray,
  toDouble,
  toInt,
  type Value,
  type ValueObject,
} from "../../lib/cel/values.ts";
import { anyTemplates, orderedTemplates, summableTemplates, templates, texts } from "./templates.ts";

/** An expression, with the data and the variables that it is evaluated with. */
export interface Task {
  id: number;
  expression: string;
  mode: "validation" | "message" | "condition" | "mutation";
  /** The data, such as `object` and `request`. */
  variables: ValueObject;
  /** The variables of the policy. Later variables and the expression can use them. */
  policyVariables: readonly { name: string; expression: string }[];
}

type StaticType = { readonly name: string; readonly parameters: readonly StaticType[] };

const parsedTypes = new Map<string, StaticType>();

/** Parses a type as CEL prints it, such as `map(string,list(int))`. */
const parseType = (text: string): StaticType => {
  const parsedBefore = parsedTypes.get(text);
  if (parsedBefore) return parsedBefore;
  const [, name = "", inner] = /^(\w+)(?:\((.*)\))?$/.exec(text) ?? [];
  const parameters: StaticType[] = [];
  let [depth, start] = [0, 0];
  // Without parentheses, a type has no parameters, and the loop doesn't run.
  const end = inner?.length ?? -1;
  for (let index = 0; index <= end; index++) {
    const character = inner?.[index];
    if (character === "(") depth++;
    if (character === ")") depth--;
    if (index === end || (character === "," && depth === 0)) {
      parameters.push(parseType(inner?.slice(start, index) ?? ""));
      start = index + 1;
    }
  }
  const type = { name, parameters };
  parsedTypes.set(text, type);
  return type;
};

const printType = ({ name, parameters }: StaticType): string =>
  parameters.length === 0 ? name : `${name}(${parameters.map(printType).join(",")})`;

/** The types that some capital letters in templates stand for. Other capital letters stand for any of `anyTypes`. */
const letters: Record<string, readonly string[]> = {
  A: ["string", "int"],
  C: ["int", "uint", "double", "string", "bool", "bytes", "duration", "timestamp"],
  K: ["string", "string", "string", "int", "uint", "bool"],
  M: ["int", "uint", "double"],
  N: ["int", "uint", "double"],
  S: ["int", "uint", "double", "duration"],
};
const scalars = ["int", "int", "string", "string", "bool", "double", "uint"];
/** The types that most letters in templates stand for. A type that is listed several times is chosen more often. */
const anyTypes = [
  ...scalars,
  ...scalars,
  ...scalars,
  "bytes",
  "duration",
  "timestamp",
  "null",
  "type",
  "dyn",
  "dyn",
  "list(int)",
  "list(string)",
  "list(dyn)",
  "map(string,int)",
  "map(string,string)",
  "map(int,bool)",
  "map(string,dyn)",
  "optional(int)",
  "optional(string)",
  "quantity",
  "ip",
  "cidr",
  "url",
  "semver",
  "list(list(int))",
  "list(double)",
  "map(string,list(int))",
];
/** The types of whole expressions. */
const resultTypes = [
  "bool",
  "bool",
  "bool",
  "bool",
  "int",
  "uint",
  "double",
  "string",
  "string",
  "bytes",
  "duration",
  "timestamp",
  "dyn",
  "type",
  "list(int)",
  "list(string)",
  "list(double)",
  "list(dyn)",
  "map(string,int)",
  "map(int,string)",
  "optional(int)",
  "optional(string)",
  "optional(dyn)",
  "quantity",
  "ip",
  "cidr",
  "url",
  "semver",
  "decision",
  "list(uint)",
  "list(duration)",
  "list(list(int))",
  "map(string,string)",
  "list(bool)",
  "optional(list(string))",
];

const isLetter = (name: string) => /^[A-Z]$/.test(name);

/**
 * Reports whether a pattern such as `list(T)` can stand for a type such as `list(int)`. Adds the types of the pattern's
 * letters to `boundTypes`.
 */
const unify = (pattern: StaticType, type: StaticType, boundTypes: Map<string, StaticType>): boolean => {
  if (isLetter(pattern.name)) {
    const allowedTypes = letters[pattern.name];
    if (allowedTypes && !allowedTypes.includes(printType(type))) return false;
    boundTypes.set(pattern.name, type);
    return true;
  }
  return (
    pattern.name === type.name &&
    pattern.parameters.length === type.parameters.length &&
    // Both have the same number of parameters.
    pattern.parameters.every((one, index) => unify(one, type.parameters[index] as StaticType, boundTypes))
  );
};

/** Literals of CEL by type. `key` has names of fields, and `index` has indexes of lists. */
const literals: Record<string, readonly string[]> = {
  bool: ["true", "false"],
  int: [
    "0",
    "1",
    "2",
    "3",
    "5",
    "10",
    "-1",
    "-2",
    "100",
    "0",
    "1",
    "2",
    "63",
    "64",
    "0x1F",
    "-0x10",
    "1024",
    "1700000000",
    "9223372036854775807",
    "-9223372036854775808",
    "9007199254740991",
    "9007199254740993",
    "-9007199254740993",
    "4294967296",
    "2147483647",
    "-2147483648",
    "9223372036854775808",
    "253402300799",
    "253402300800",
    "-62135596801",
  ],
  uint: [
    "0u",
    "1u",
    "2u",
    "10u",
    "3U",
    "0xFFu",
    "18446744073709551615u",
    "9223372036854775808u",
    "9007199254740993u",
    "18446744073709551616u",
  ],
  double: [
    "0.0",
    "1.0",
    "-1.0",
    "1.5",
    "-2.5",
    "0.1",
    "3.0",
    "1e3",
    ".5",
    "1e308",
    "1e-320",
    "1e21",
    "9007199254740993.0",
    "9223372036854775807.0",
    "-9223372036854775808.0",
    "18446744073709551615.0",
    "1E-7",
    "-0.0",
    "123456.789",
    "1e400",
    "(0.0/0.0)",
    "(1.0/0.0)",
    "4.35",
    "0.3",
    "2.675",
    "1e15",
    "0.000001",
  ],
  string: [
    "''",
    "'a'",
    '"abc"',
    "'b'",
    "'hello there'",
    "'a,b,,c'",
    "'ABC'",
    "'aXbXc'",
    "'  trim\\t\\n '",
    "'1'",
    "'true'",
    "'é'",
    "'日本語'",
    "'😀'",
    "'a😀b😀'",
    "'e\\u0301'",
    "'\\u0000'",
    "'\\U0001F600x'",
    "'ÄÖß'",
    "'\\x41\\102'",
    "'\\a\\b\\f\\n\\r\\t\\v\\\\\\?\\\"\\'\\`'",
    "r'\\d\\n'",
    'R"raw"',
    "'''tri'ple\n'''",
    '"""x"y"""',
    "r'''a\\'''",
    "'\\ud800'",
    "'\\q'",
    "'İıſK'",
    "'\\u00a0\\u2003x\\ufeff'",
    "'𝒳𝒴'",
    "'registry.corp/app:1.0'",
    "'app.kubernetes.io/name'",
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'",
    "'1.5Gi'",
    "'10.0.0.1'",
    "'1h'",
    "'2020-02-29T12:34:56Z'",
    "'__proto__'",
    "'constructor'",
    "'a.b'",
    "'foo bar foo'",
    "'%s'",
  ],
  bytes: [
    "b''",
    "b'abc'",
    'b"a"',
    "b'\\xff\\x00'",
    "b'é'",
    "br'\\n'",
    "B'😀'",
    "b'\\377'",
    "b'''x'''",
    "b'\\u00e9'",
    "b'\\xf0\\x9f'",
    "rb'x'",
  ],
  null: ["null"],
  type: ["int", "string", "bool", "type", "list", "google.protobuf.Duration"],
  key: [
    "a",
    "b",
    "s",
    "i",
    "d",
    "n",
    "l",
    "m",
    "nope",
    "spec",
    "namespace",
    "x",
    "in",
    "toString",
    "__proto__",
    "_x1",
    "a.b",
  ],
  index: ["0", "1", "2", "3", "-1", "10", "5"],
};

/** The values of fields in generated objects. */
const fieldValues: readonly Value[] = [
  ...[0, 1, 2, -1, 42, 9007199254740993n, 9223372036854775807n, -9223372036854775808n, 3, 10],
  ...[1, 0, 0.5, -2.25, 1e21, 1e300, 3].map(toDouble),
  "",
  "a",
  "abc",
  "hello",
  "é",
  "😀x",
  "日本語",
  "1",
  "true",
  "10.0.0.1",
  "1Gi",
  "2020-01-01T00:00:00Z",
  "1h",
  "b",
  "a,b",
  true,
  false,
  null,
  null,
  "a".repeat(300),
  "é😀x,".repeat(40),
  "app.kubernetes.io/name-of-a-long-label",
];
const fieldNames = ["a", "b", "s", "i", "d", "n", "l", "m", "spec", "namespace", "x", "x-y", "é", "__proto__", "in"];

/** Returns a random value. Lists and maps are nested at most `depth` times. */
const createFieldValue = (random: Random, depth: number): Value => {
  // A number from 0 to 1 chooses the kind of value.
  const choice = random.draw();
  if (depth > 0 && choice < 0.02) {
    // A long list, of one value or of small numbers.
    const value = random.pick(fieldValues);
    const isRepeated = random.decide(0.7);
    return Array.from({ length: 20 + random.drawBelow(60) }, () => (isRepeated ? value : random.drawBelow(100)));
  }
  if (depth > 0 && choice < 0.2)
    return Array.from({ length: random.drawBelow(4) }, () => createFieldValue(random, depth - 1));
  if (depth > 0 && choice < 0.35) {
    const value = random.pick(fieldValues);
    // A list of values of one type.
    return Array.from({ length: random.drawBelow(5) }, () => {
      const other = random.pick(fieldValues);
      return typeof other === typeof value ? other : value;
    });
  }
  if (depth > 0 && choice < 0.55) return createMap(random, depth - 1, 3);
  return random.pick(fieldValues);
};

// Object.fromEntries makes `__proto__` a usual member of the object.
const createMap = (random: Random, depth: number, maxLength: number): ValueObject =>
  Object.fromEntries(
    Array.from({ length: random.drawBelow(maxLength + 1) }, () => [
      random.pick(fieldNames),
      createFieldValue(random, depth),
    ]),
  );

/** Lists a value and the values in it, with their paths in CEL, such as `object.a[0]` and `object['x-y']`. */
const listPaths = (value: Value, path: string, depth = 4): [path: string, value: Value][] => {
  const paths: [string, Value][] = [[path, value]];
  if (depth > 0 && isList(value))
    for (const [index, element] of toArray(value).entries())
      paths.push(...listPaths(element, `${path}[${index}]`, depth - 1));
  else if (depth > 0 && isMap(value))
    for (const [key, member] of Object.entries(value)) {
      const isName = /^[a-zA-Z_]\w*$/.test(key) && key !== "in";
      paths.push(...listPaths(member, isName ? `${path}.${key}` : `${path}['${key}']`, depth - 1));
    }
  return paths;
};

/** Returns the name of the CEL type that a value of JSON has. */
const getTypeName = (value: Value): string => {
  if (value === null) return "null";
  if (isList(value)) return "list";
  if (isMap(value)) return "map";
  if (typeof value === "string") return "string";
  if (typeof value === "boolean") return "bool";
  return typeof value === "bigint" || Number.isSafeInteger(value) ? "int" : "double";
};

/** What a generated expression may use. */
interface Scope {
  variables: readonly { name: string; type: string }[];
  /** Paths of values in the object, by the types of the values. */
  paths: ReadonlyMap<string, readonly string[]>;
  /**
   * Whether the type of an expression must be known before it is evaluated, as for the elements of a list literal. Then
   * a path, whose static type is dyn, gets a conversion, such as `int(object.i)`.
   */
  needsStaticTypes: boolean;
  /** How many more expressions may be generated. All parts of one expression share this number. */
  budget: { left: number };
}

const allTemplates = Object.entries(templates).map(([result, list]) => ({ result: parseType(result), list }));
/** For each type, the templates of its values. `boundTypes` has the types that letters such as `T` stand for. */
const templatesByType = new Map<string, readonly { template: string; boundTypes: ReadonlyMap<string, StaticType> }[]>();

/** Returns the templates whose value can have a type. */
const findCandidates = (type: string) => {
  const foundBefore = templatesByType.get(type);
  if (foundBefore) return foundBefore;
  const parsed = parseType(type);
  const ofType = allTemplates.flatMap(({ result, list }) => {
    const boundTypes = new Map<string, StaticType>();
    return unify(result, parsed, boundTypes) ? list.map((template) => ({ template, boundTypes })) : [];
  });
  const bindLetter = (list: readonly string[], letter: string) =>
    list.map((template) => ({ template, boundTypes: new Map([[letter, parsed]]) }));
  const candidates = [
    ...ofType,
    // The letter stands for `type` itself: T in templates for any type, C if the type's values can be compared, S if
    // they can be added.
    ...bindLetter(anyTemplates, "T"),
    ...(letters.C?.includes(type) ? bindLetter(orderedTemplates, "C") : []),
    ...(letters.S?.includes(type) ? bindLetter(summableTemplates, "S") : []),
  ];
  templatesByType.set(type, candidates);
  return candidates;
};

/** Replaces letters in a type, as in `list(T)`, by their types. For a letter without a type, chooses one at random. */
const replaceLetters = (type: StaticType, boundTypes: Map<string, StaticType>, random: Random): StaticType => {
  if (!isLetter(type.name)) {
    const parameters = type.parameters.map((parameter) => replaceLetters(parameter, boundTypes, random));
    return { name: type.name, parameters };
  }
  const typeOfLetter = boundTypes.get(type.name) ?? parseType(random.pick(letters[type.name] ?? anyTypes));
  boundTypes.set(type.name, typeOfLetter);
  return typeOfLetter;
};

const names = ["x", "y", "z", "k", "v", "e", "i", "it", "c"];

/**
 * Returns a random expression, mostly of the given type: a type as CEL prints it, such as `list(int)`; or a word for a
 * part of an expression: "key" (a field's name), "index" (of a list), "var" (a variable) or "path" (a field's path).
 */
const createExpression = (random: Random, type: string, depth: number, scope: Scope): string => {
  if (type === "key") return random.pick(literals[type] ?? []);
  if (type === "index") return random.pick(random.decide(0.03) ? (literals.string ?? []) : (literals[type] ?? []));
  if (random.decide(0.006)) return createExpression(random, random.pick(anyTypes), depth, scope);
  if (type === "var") return scope.variables.length > 0 ? random.pick(scope.variables).name : "x";
  if (type === "path") {
    const innerPaths = [...scope.paths.values()].flat().filter((path) => path !== "object");
    return random.pick([...innerPaths, "object.a"]);
  }
  if (scope.budget.left-- <= 0 || depth <= 0 || random.decide(0.12)) return createLeaf(random, type, scope);
  if (random.decide(scope.needsStaticTypes ? 0.001 : 0.02))
    return `dyn(${createExpression(random, type, depth - 1, scope)})`;
  const { template, boundTypes } = random.pick(findCandidates(type));
  return fillTemplate(random, template, new Map(boundTypes), depth - 1, scope);
};

/** Characters of texts with a syntax, such as quantities or URLs, and some that no such text has. */
const textCharacters = [
  ..."0123456789abcdefxyzEGKMTikmnuvszhpZ.:/-+%[]@#?&=_ ,()*^$|\\{}\u00e9\u00df\u212a\u{1f600}\t~!;<>",
];

/** Changes some characters of a CEL text in single quotes, such as 'abc' or r'\d'. Returns other literals unchanged. */
const changeText = (random: Random, literal: string): string => {
  const prefix = literal.startsWith("r") ? "r" : "";
  if (literal[prefix.length] !== "'" || (prefix === "" && literal.includes("\\"))) return literal;
  const characters = [...literal.slice(prefix.length + 1, -1)];
  for (let count = 1 + random.drawBelow(3); count > 0; count--) {
    const index = random.drawBelow(characters.length + 1);
    const isRepeated = random.decide(0.3) && characters.length > 0;
    const character = random.pick(isRepeated ? characters : textCharacters);
    const deleteCount = random.decide(0.6) ? 1 : 0;
    characters.splice(index, deleteCount, ...(random.decide(0.75) ? [character] : []));
  }
  const text = characters.join("");
  // Upstream computes with quantities of any exponent, which may take hours.
  if (/e[-+]?\d{4}/i.test(text)) return literal;
  if (prefix === "") return `'${text.replaceAll("\\", "\\\\").replaceAll("\t", "\\t")}'`;
  return text.endsWith("\\") ? literal : `r'${text.replaceAll("\t", " ")}'`;
};

/**
 * Returns one of the texts for a use, such as "url". If the list has invalid texts (after a "|"), 15 % of the results
 * are invalid. In 25 % of all cases, some characters of the result are then changed at random.
 */
const pickText = (random: Random, use: string): string => {
  const list = texts[use] ?? [];
  const separator = list.indexOf("|");
  const hasInvalid = separator >= 0;
  const valid = hasInvalid ? list.slice(0, separator) : list;
  const text = random.pick(!hasInvalid || random.decide(0.85) ? valid : list.slice(separator + 1));
  return random.decide(0.25) ? changeText(random, text) : text;
};

/** Returns a number of any size as a literal. */
const createNumber = (random: Random, type: string): string => {
  const sign = random.decide(0.3) && type !== "uint" ? "-" : "";
  const digits = Array.from({ length: 1 + random.drawBelow(20) }, () => random.drawBelow(10)).join("");
  if (type === "int") return `${sign}${BigInt(digits)}`;
  if (type === "uint") return `${BigInt(digits)}u`;
  const number = random.draw() * 10 ** (random.drawBelow(60) - 30);
  if (random.decide(0.5))
    return `${sign}${number.toPrecision(1 + random.drawBelow(17))}`.replace(/^(-?\d+)(e|$)/, "$1.0$2");
  return `${sign}${Number(digits) / 10 ** random.drawBelow(20)}`.replace(/^(-?\d+)(e|$)/, "$1.0$2");
};

/** Returns a simple expression of a type: a variable, a path in the object, or a literal. */
const createLeaf = (random: Random, type: string, scope: Scope): string => {
  const usable = scope.variables.filter((variable) => variable.type === type || variable.type === "dyn");
  if (usable.length > 0 && random.decide(0.6)) return random.pick(usable).name;
  const { name, parameters } = parseType(type);
  const pathsOfType = scope.paths.get(name);
  if (pathsOfType && pathsOfType.length > 0 && random.decide(0.35)) {
    const path = random.pick(pathsOfType);
    // A path has the static type dyn. Where static types are needed, a conversion such as int(path) is used mostly.
    if (!scope.needsStaticTypes || random.decide(0.05)) return path;
    if (["bool", "double", "int", "string"].includes(name)) return `${name}(${path})`;
  }
  const literal = literals[name];
  if (literal && ["int", "uint", "double"].includes(name) && random.decide(0.15)) return createNumber(random, name);
  if (literal) return random.pick(literal);
  const typed = { ...scope, needsStaticTypes: true };
  const createInner = (inner: StaticType | undefined) => createLeaf(random, inner ? printType(inner) : "int", typed);
  const text = (use: string) => pickText(random, use);
  switch (name) {
    case "list": {
      const [element] = parameters;
      return `[${Array.from({ length: random.drawBelow(5) }, () => createInner(element)).join(", ")}]`;
    }
    case "map": {
      const [key, value] = parameters;
      return `{${Array.from({ length: random.drawBelow(4) }, () => `${createInner(key)}: ${createInner(value)}`).join(", ")}}`;
    }
    case "optional":
      return random.decide(0.3) ? "optional.none()" : `optional.of(${createInner(parameters[0])})`;
    case "dyn":
      return random.decide(0.5)
        ? createLeaf(random, "path", scope)
        : `dyn(${createLeaf(random, random.pick(scalars), scope)})`;
    // `path` and `var` stand for any path and any variable. createExpression mostly picks one, whatever the depth.
    case "path":
      return createExpression(random, "path", /* depth */ 1, scope);
    case "var":
      return createExpression(random, "var", /* depth */ 1, scope);
    case "duration":
    case "timestamp":
    case "quantity":
    case "url":
    case "ip":
    case "cidr":
    case "semver":
      return `${name}(${text(name)})`;
    case "format":
      return "format.dns1123Label()";
    case "authorizer":
      return "authorizer";
    case "pathCheck":
      return `authorizer.path(${text("path")})`;
    case "groupCheck":
      return `authorizer.group(${text("group")})`;
    case "resourceCheck":
      return random.decide(0.3) ? "authorizer.requestResource" : `authorizer.group(${text("group")}).resource('pods')`;
    case "decision":
      return "authorizer.requestResource.check('get')";
    case "struct":
      return "Object{a: 1}";
    case "patch":
    case "JSONPatch":
      return "JSONPatch{op: 'remove', path: '/a'}";
    default:
      throw new Error(`there is no literal of type ${type}`);
  }
};

/** Matches the beginning of a placeholder in a template, such as `$list` in `$list(T)`. */
const holePattern = /\$(\w+)/g;

/** Returns the index of the parenthesis that closes the one at `start`. */
const findClosingParenthesis = (text: string, start: number): number => {
  let depth = 0;
  for (let index = start; index < text.length; index++) {
    if (text[index] === "(") depth++;
    if (text[index] === ")" && --depth === 0) return index;
  }
  throw new Error(`a parenthesis isn't closed in ${text}`);
};

/**
 * Replaces the placeholders of a template in their order. A variable that the template declares can be used in the
 * placeholders after it. `boundTypes` has the types of letters such as `T`; a new letter gets a random type.
 */
const fillTemplate = (
  random: Random,
  template: string,
  boundTypes: Map<string, StaticType>,
  depth: number,
  outer: Scope,
): string => {
  // Kubernetes refuses a literal list or map whose elements have several static types. 3 % of the literals test this.
  const isListOrMap = /^[[{]/.test(template);
  let scope = { ...outer, needsStaticTypes: outer.needsStaticTypes || (isListOrMap && random.decide(0.97)) };
  let result = "";
  let end = 0;
  for (const match of template.matchAll(holePattern)) {
    const [{ length }, name = ""] = match;
    if (match.index < end) continue;
    result += template.slice(end, match.index);
    end = match.index + length;
    let inner: string | undefined;
    if (template[end] === "(" && ["list", "map", "optional", "text", "var"].includes(name)) {
      const close = findClosingParenthesis(template, end);
      inner = template.slice(end + 1, close);
      end = close + 1;
    }
    if (name === "text") result += pickText(random, inner ?? "");
    else if (name === "var" && inner !== undefined) {
      const type = printType(replaceLetters(parseType(inner), boundTypes, random));
      const variable = random.pick(names);
      scope = {
        ...scope,
        variables: [...scope.variables.filter((other) => other.name !== variable), { name: variable, type }],
      };
      result += variable;
    } else {
      const pattern = parseType(inner === undefined ? name : `${name}(${inner})`);
      const type = printType(replaceLetters(pattern, boundTypes, random));
      const expression = createExpression(random, type, depth, scope);
      // As an operand of an operator or a call, an expression keeps its meaning only in parentheses.
      const isBeforeOperator = /^[\s]*[-+*/%<>=!&|?.[]|^ in /.test(template.slice(end));
      const isAfterOperator = /[-+*/%<>=!&|?] *$|^-$| in $/.test(result);
      // Operations are for instance `-a` and `a + b`, but not a text, a list or an expression in parentheses.
      const isOperation = /^-|[\s?]/.test(expression) && !/^(['"]|\[[^\]]*\]$|\([^)]*\)$)/.test(expression);
      result += (isBeforeOperator || isAfterOperator) && isOperation ? `(${expression})` : expression;
    }
  }
  return result + template.slice(end);
};

/** Returns an expression with one operator. Its operands are values of any types, some of them converted to dyn. */
const createMixedOperation = (random: Random, scope: Scope): string => {
  const createOperand = () => {
    const text = createExpression(random, random.pick(anyTypes), 1, { ...scope, budget: { left: 3 } });
    return random.decide(0.6) ? `dyn(${text})` : `(${text})`;
  };
  const operator = random.pick("== != < <= > >= + - * / % in && || [] ?: [?]".split(" "));
  if (operator === "[]") return `${createOperand()}[${createOperand()}]`;
  if (operator === "[?]") return `${createOperand()}[?${createOperand()}]`;
  if (operator === "?:") return `${createOperand()} ? ${createOperand()} : ${createOperand()}`;
  return `${createOperand()} ${operator} ${createOperand()}`;
};

/** Returns the functions in the templates, for calls with wrong arguments. A dot before the name marks a method. */
const listCalledFunctions = () => {
  const functions = new Map<string, { dot: string; name: string; count: number }>();
  for (const template of Object.values(templates).flat()) {
    // Placeholders such as `$list(T)` become `$`, so that `$string.charAt($index)` matches as `.charAt($)`.
    const shortened = template.replaceAll(/\$\w+(\([^()]*\))?/g, "$");
    for (const [, dot = "", name = "", args = ""] of shortened.matchAll(
      /(\.?)\b([a-zA-Z]\w*(?:\.[a-zA-Z]\w*)?)\(([$, ]*)\)/g,
    ))
      functions.set(`${dot}${name}(${args}`, { dot, name, count: args.split("$").length - 1 });
  }
  const macro = /^(all|exists|map|filter|sortBy|transform\w+|optMap|optFlatMap|exists_one|existsOne|has)$/;
  // With an argument of any size, lists.range could need too much memory: upstream has no limit for it.
  return [...functions.values()].filter(({ name }) => !macro.test(name) && name !== "lists.range");
};
const calledFunctions = listCalledFunctions();

/** Returns a call of a function with arguments of any types. */
const createWrongCall = (random: Random, scope: Scope): string => {
  const argument = () => {
    const text = createExpression(random, random.pick(anyTypes), 1, { ...scope, budget: { left: 2 } });
    return random.decide(0.85) ? `dyn(${text})` : text;
  };
  const { dot, name, count } = random.pick(calledFunctions);
  const args = Array.from({ length: random.decide(0.93) ? count : random.drawBelow(4) }, argument).join(", ");
  return dot ? `${argument()}.${name}(${args})` : `${name}(${args})`;
};

const alphabet = [..."()[]{}.,:?!=<>+-*/%&|'\"`\\ \nabin019xuU_#$@;~^é😀"];

/** Deletes or inserts a few characters of an expression. */
const damage = (random: Random, text: string): string => {
  const characters = [...text];
  for (let count = 1 + random.drawBelow(2); count > 0; count--) {
    const index = random.drawBelow(characters.length + 1);
    const choice = random.draw();
    if (choice < 0.4) characters.splice(index, 1);
    else if (choice < 0.8) characters.splice(index, 0, random.pick(alphabet));
    else characters.splice(index, 1 + random.drawBelow(6));
  }
  return characters.join("");
};

/** An object of some kind, and expressions that policies for this kind use. */
interface PolicySample {
  object: Value;
  expressions: readonly string[];
}

/** Converts a value of YAML into a value of lib/cel. */
const toValue = (value: unknown): Value => {
  if (typeof value === "bigint") return toInt(value);
  if (typeof value === "number") return toDouble(value);
  if (Array.isArray(value)) return value.map(toValue);
  if (typeof value === "object" && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, toValue(one)]));
  return value as null | boolean | string;
};

/** For each kind in policies.yaml, an object of the kind and expressions that policies evaluate for it. */
const policySamples: readonly PolicySample[] = Object.values(
  parse(readFileSync(new URL("policies.yaml", import.meta.url), "utf8"), { intAsBigInt: true }) as Record<
    string,
    PolicySample
  >,
).map(({ object, expressions }) => ({ object: toValue(object), expressions }));

/** Returns a copy of a value in which inner values are changed or missing, each with this probability. */
const mutate = (random: Random, value: Value, probability: number): Value => {
  if (random.decide(probability)) {
    const choice = random.draw();
    if (choice < 0.2) return null;
    if (choice < 0.3) return [];
    if (choice < 0.4) return {};
    if (choice < 0.5 && isList(value) && value.length > 0) return [...value, value.at(0) as Value];
    if (choice < 0.6 && typeof value === "string")
      return `${value}${random.pick(["", "x", "😀", " ", "/", ":latest"])}`;
    if (choice < 0.7 && typeof value === "number") return value + 1;
    return random.pick(fieldValues);
  }
  if (isList(value))
    return toArray(value)
      .filter(() => !random.decide(probability))
      .map((one) => mutate(random, one, probability));
  if (!isMap(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(() => !random.decide(probability))
      .map(([key, one]) => [key, mutate(random, one, probability)]),
  );
};

/** The request in the data of most tasks. */
const request: ValueObject = {
  kind: { group: "apps", version: "v1", kind: "Deployment" },
  resource: { group: "apps", version: "v1", resource: "deployments" },
  requestKind: { group: "apps", version: "v1", kind: "Deployment" },
  requestResource: { group: "apps", version: "v1", resource: "deployments" },
  name: "web",
  namespace: "shop",
  operation: "CREATE",
  userInfo: { username: "jane", groups: ["system:authenticated", "developers"], extra: { scopes: ["a", "b"] } },
  dryRun: false,
  options: { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1", fieldManager: "kubectl" },
};
const requests: readonly ValueObject[] = [
  request,
  { ...request, operation: "UPDATE", requestSubResource: "status", subResource: "status", dryRun: true },
  { ...request, operation: "DELETE", name: "", userInfo: { username: "system:serviceaccount:a:b", uid: "1" } },
];
/** The Namespace in the data of most tasks. */
const namespaceObject: ValueObject = {
  metadata: {
    name: "shop",
    uid: "0a1b",
    resourceVersion: "12",
    creationTimestamp: "2024-01-01T00:00:00Z",
    labels: { "kubernetes.io/metadata.name": "shop", environment: "production" },
  },
  spec: { finalizers: ["kubernetes"] },
  status: { phase: "Active" },
};
const policyParameters: Value = {
  a: 1,
  s: "text",
  maxReplicas: 5,
  maxContainers: 2,
  allowedRegistries: ["registry.corp/", "docker.io/"],
};

const usualPolicyVariables = [
  { name: "registry", expression: "'registry.corp/'" },
  { name: "containers", expression: "object.spec.containers" },
  { name: "images", expression: "variables.containers.map(c, c.image)" },
];

/** Generates an endless series of tasks. The same seed gives the same tasks. */
export function* generateTasks(seed: number): Generator<Task, never> {
  const random = createRandom(seed);
  for (let id = 1; ; id++) {
    const isPolicy = random.decide(0.2);
    const task = isPolicy ? createPolicyTask(random) : createGeneratedTask(random);
    const expression = (random.decide(0.03) ? damage(random, task.expression) : task.expression).toWellFormed();
    yield { ...task, id, expression };
  }
}

/** Tokens of CEL, and beginnings of expressions, from which random texts are composed. */
const tokens = [
  "(",
  ")",
  "[",
  "]",
  "{",
  "}",
  ".",
  ",",
  ":",
  "?",
  "!",
  "-",
  "+",
  "*",
  "/",
  "%",
  "<",
  "==",
  "&&",
  "||",
  "in",
  "a",
  "x",
  "1",
  "'",
  '"',
  "'a'",
  "1u",
  "1.5",
  "0x",
  "true",
  "null",
  "has(",
  ".all(",
  ".map(x, ",
  "[?",
  "{?",
  ".?",
  "//",
  "\\",
  "\n",
  "`",
  "\0",
  "b'",
  "r'",
  "'''",
  '"""',
  "1e",
  "Object{",
  "a.b{",
  "😀",
  "\ufeff",
  "\u2028",
  "package",
  "for",
  ".optMap(x, ",
  ".sortBy(x, ",
];

/**
 * Generates an endless series of texts for the parser: expressions, damaged expressions, series of tokens or
 * characters, and deeply nested expressions.
 */
export function* generateTexts(seed: number): Generator<string, never> {
  const random = createRandom(seed);
  const tasks = generateTasks(seed);
  for (;;) {
    const choice = random.draw();
    const joinRandom = (list: readonly string[], maxCount: number) =>
      Array.from({ length: random.drawBelow(maxCount) }, () => random.pick(list)).join("");
    if (choice < 0.2) {
      let text = tasks.next().value.expression;
      for (let count = random.drawBelow(8); count > 0; count--) text = damage(random, text);
      yield text;
    } else if (choice < 0.6) yield joinRandom(tokens, 60);
    else if (choice < 0.9) yield joinRandom(alphabet, 60);
    else if (choice < 0.99) {
      const codes = Array.from({ length: random.drawBelow(40) }, () => random.drawBelow(0x1_0000));
      yield String.fromCodePoint(...codes);
    } else {
      const token = random.pick(tokens);
      const count = random.pick([100, 249, 250, 251, 1000, 10_000]);
      yield token.repeat(count) + joinRandom(tokens, 5);
    }
  }
}

/** Returns a task with an expression of a real policy and a changed object of the policy. */
const createPolicyTask = (random: Random): Omit<Task, "id"> => {
  const { object, expressions } = random.pick(policySamples);
  const expression = random.pick(expressions);
  const probability = random.pick([0, 0.002, 0.01, 0.03, 0.1]);
  const changedObject = mutate(random, object, probability);
  const isMutation = /\b(Object|JSONPatch|jsonpatch)\b/.test(expression);
  const chooseOtherMode = () => (random.decide(0.03) ? "message" : "validation");
  return {
    expression: random.decide(0.15) ? changeToken(random, expression) : expression,
    mode: isMutation ? "mutation" : chooseOtherMode(),
    variables: {
      object: changedObject,
      oldObject: random.decide(0.5) ? null : mutate(random, changedObject, 0.02),
      params: random.decide(0.9) ? policyParameters : null,
      request: random.pick(requests),
      namespaceObject: random.decide(0.8) ? namespaceObject : null,
    },
    policyVariables: expression.includes("variables.") ? usualPolicyVariables : [],
  };
};

/** Replaces a word, a number or an operator of an expression by a different one. */
const changeToken = (random: Random, text: string): string => {
  const tokens = [...text.matchAll(/\w+|[<>=!]=|[-+*/%<>!.?:]/g)];
  const { index, 0: old } = random.pick(tokens);
  const other = random.pick(tokens)[0];
  const replacement = /^\w/.test(old)
    ? random.pick([other, "1", "1.5", "'x'", "nope", "null", "true", "size", "[]", "dyn(1)", "object"])
    : random.pick([other, "+", "-", "<", "==", "!=", "&&", "||", "in", ".", "?", "*", "%"]);
  return text.slice(0, index) + replacement + text.slice(index + old.length);
};

/** Returns a task with a generated expression and a generated object. */
const createGeneratedTask = (random: Random): Omit<Task, "id"> => {
  const object = { ...createMap(random, 3, 10), s: random.pick(["abc", "", "é😀"]), i: random.pick([0, 1, 7]) };
  const paths = new Map<string, string[]>();
  for (const [path, value] of listPaths(object, "object"))
    paths.set(getTypeName(value), [...(paths.get(getTypeName(value)) ?? []), path]);
  // A second draw decides below whether this is a patch: one draw would change the tasks that a seed gives.
  const mayBePatch = random.decide(0.2);
  const variables: { name: string; type: string }[] = [];
  const policyVariables: { name: string; expression: string }[] = [];
  const create = (type: string, depth: number) =>
    createExpression(random, type, depth, {
      variables,
      paths,
      needsStaticTypes: false,
      budget: { left: random.pick([2, 5, 10, 25]) },
    });
  if (random.decide(0.15))
    for (const name of ["first", "second"]) {
      const type = random.pick(anyTypes);
      policyVariables.push({ name, expression: create(type, 3) });
      variables.push({ name: `variables.${name}`, type });
    }
  const choice = random.draw();
  const scope = { variables, paths, needsStaticTypes: false, budget: { left: 5 } };
  const patchTypes = ["struct", "patch", "list(JSONPatch)", "dyn"];
  const resultType = random.pick(mayBePatch && random.decide(0.6) ? patchTypes : resultTypes);
  const createAnyExpression = () => {
    if (choice < 0.15) return createMixedOperation(random, scope);
    return choice < 0.25 ? createWrongCall(random, scope) : create(resultType, random.pick([1, 1, 2, 3, 4, 5]));
  };
  const expression = createAnyExpression();
  return {
    expression,
    // The place in a policy, such as a message: mostly one that has the variables and types that these expressions use.
    mode: chooseMode(random, [expression, ...policyVariables.map((one) => one.expression)].join(" ")),
    variables: {
      object,
      oldObject: random.decide(0.3) ? null : createMap(random, 1, 4),
      params: policyParameters,
      request: random.pick(requests),
      namespaceObject: random.decide(0.8) ? namespaceObject : null,
    },
    policyVariables,
  };
};

/** Returns a mode of evaluation, mostly one in which everything that an expression uses is available. */
const chooseMode = (random: Random, text: string): Task["mode"] => {
  if (random.decide(0.02)) return random.pick(["validation", "message", "condition", "mutation"]);
  if (/\b(Object|JSONPatch|jsonpatch)\b/.test(text)) return "mutation";
  if (random.decide(0.2) && !text.includes("variables.")) return "condition";
  return random.decide(0.2) && !text.includes("authorizer") ? "message" : "validation";
};

/** Writes a value as JSON in which ints and doubles differ, as `1` and `1.0`. */
export const writeValue = (value: Value): string => {
  if (value === null || typeof value === "boolean") return `${value}`;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return `${value}`;
  if (isList(value)) return `[${toArray(value).map(writeValue).join(",")}]`;
  if (isMap(value))
    return `{${Object.entries(value)
      .map(([key, one]) => `${JSON.stringify(key)}:${writeValue(one)}`)
      .join(",")}}`;
  if (!isDouble(value)) throw new Error("JSON has no such value");
  const number = getDouble(value);
  const text = Object.is(number, -0) ? "-0" : `${number}`;
  return /[.e]/.test(text) ? text : `${text}.0`;
};
