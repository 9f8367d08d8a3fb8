import { parseMinor } from "../../lib/since.ts";
import type { Task } from "./generate.ts";
import type { Answer } from "./upstream.ts";

/** The parts of answers that can differ. */
export const kinds = ["failure", "issues", "creation", "type", "error", "value", "cost"] as const;
export type Kind = (typeof kinds)[number];

/** A difference between upstream's and Postern's answers to a task. */
export interface Difference {
  kind: Kind;
  /** The minor of Kubernetes that was compared. */
  minor: string;
  task: Task;
  upstream: Answer;
  postern: Answer;
}

/** An accepted difference, with the reason. */
interface KnownDifference {
  reason: string;
  /** The last minor with this difference; without it, all minors have it. */
  until?: string;
  /** Reports whether a difference is this known one. */
  matches(difference: Difference, print: (value: unknown) => string): boolean;
}

/** Matches the names that cel-go and Go have for the types of lists, maps, null and quantities. */
const goTypes =
  /\*?cel\.Quantity|\*types\.(?:baseList|concatList|baseMap)|types\.Null|<nil>|\[\](?:interface \{\}|ref\.Val|string)|map\[\w+(?:\.\w+)?\](?:interface \{\}|ref\.Val)/g;

const getText = ({ expression, policyVariables }: Task) =>
  [expression, ...policyVariables.map((one) => one.expression)].join(" ");

/** Matches a name that begins with a dot. */
const globalName = /(?<![\w.)\]?`}'"])\.[a-z_]/i;

const differsOnlyIn = ({ upstream, postern }: Difference, pattern: RegExp) =>
  upstream.error !== postern.error && upstream.error?.replace(pattern, "") === postern.error?.replace(pattern, "");

/** Returns the words and numbers of a text, sorted. */
const listScalars = (text: string) =>
  text
    .match(/[^\s"[\]{},:]+/g)
    ?.sort()
    .join(" ");

/** All accepted differences. */
const knownDifferences: readonly KnownDifference[] = [
  {
    reason:
      "an error names Go's type of a list, a map, null or a quantity, which depends on where the value comes from",
    matches: (difference) => differsOnlyIn(difference, goTypes),
  },
  {
    reason: "an error names the type of a value in a JSON patch: upstream has Go's name, such as int64",
    matches: (difference) => differsOnlyIn(difference, /unexpected type .*(?= for JSONPatchType)/g),
  },
  {
    reason: "an error has a quantity that is a sum or large, or a version with its build",
    matches: (difference) => differsOnlyIn(difference, /\((?:\*resource\.Quantity|semver\.Version)\)\S+/g),
  },
  {
    reason: "an error has a value of a library that upstream couldn't convert twice, so that it has the error twice",
    matches: (difference) =>
      differsOnlyIn(difference, /unsupported conversion to ref\.Val: \(\*errors\.errorString\)/g),
  },
  {
    reason: "the cost of a value of a library in a field of an Object: upstream makes it an error inside of a value",
    matches: ({ kind, task }) => kind === "cost" && /Object\b.*\b(?:quantity|semver|ip|cidr|url)\(/.test(getText(task)),
  },
  {
    reason: "lists and maps that are keys of a map: Go compares them by their places in memory",
    matches: ({ task, upstream, postern }, print) =>
      /\{(variables\.\w+): [^:]+, \1: /.test(task.expression) ||
      [upstream, postern].some(
        ({ error, value }) => /insert failed: key [[{]/.test(error ?? "") || /\[\[(?:\[|\{"map")/.test(print(value)),
      ),
  },
  {
    reason: "a field that JSONPatch doesn't have: the field has no type in upstream, and both answers are errors",
    matches: ({ task, upstream, postern }) =>
      /JSONPatch/.test(getText(task)) &&
      [upstream, postern].every(({ error, issues, creation }) => error ?? issues ?? creation) &&
      [upstream, postern].some(({ error = "", issues = "", creation = "" }) =>
        /missing type conversion to proto|%!s\(|''|\w\(\)|'\(\)'|\(, /.test(error + issues + creation),
      ),
  },
  {
    reason: "an error has a list or a map from JSON: upstream writes its inner lists and maps in Go's form",
    matches: (difference) => differsOnlyIn(difference, /(?: from non-optional value|join: invalid input:) .*/gs),
  },
  {
    reason: "a message of a type that is no message has errors for its fields, too",
    matches: ({ upstream, postern }) =>
      [upstream, postern].every(({ issues = "" }) => / is not a message type/.test(issues)),
  },
  {
    reason: "equal keys of more than twelve elements, and NaN: Go's sort doesn't keep their order",
    matches: ({ kind, task, upstream, postern }, print) =>
      kind === "value" &&
      /\.sort(?:By)?\(/.test(task.expression) &&
      listScalars(print(postern.value)) === listScalars(print(upstream.value)),
  },
  {
    reason:
      "the cost of a global name with a dot that a macro's variable hides: upstream omits the cost of its selections",
    matches: ({ kind, task }) => kind === "cost" && globalName.test(getText(task)),
  },
  // lib/cel does the following as 1.37 does, in all minors, because hardly any policy needs the older behaviour.
  {
    reason: "1.37 changed what startsWith, endsWith, matches and a failing flatten cost",
    until: "1.36",
    matches: ({ kind, task }) => kind === "cost" && /(?:startsWith|endsWith|matches|flatten)\(/.test(getText(task)),
  },
  {
    reason: "a flatten that fails costs so much before 1.37 that the cost is the error",
    until: "1.36",
    matches: ({ kind, upstream, postern }) =>
      kind === "error" &&
      postern.error === "level must be non-negative" &&
      upstream.error === "operation cancelled: actual cost limit exceeded",
  },
  {
    reason: "1.37 names the types optional_type, list and map otherwise in errors",
    until: "1.36",
    matches: (difference) =>
      differsOnlyIn(difference, /optional_type(?:\(dyn\))?/g) ||
      (["issues", "type"].includes(difference.kind) &&
        /\b(?:optional_type|list|map)\b(?!\()/.test(getText(difference.task))),
  },
  {
    reason: "1.37 has no duration(int), which fails always in older versions",
    until: "1.36",
    matches: ({ upstream, postern }) =>
      /'duration' applied to '\(int\)'/.test(postern.issues ?? postern.error ?? "") ||
      (/no such overload: duration\(int\)$/.test(postern.creation ?? postern.error ?? "") &&
        /type conversion error from 'int' to 'google\.protobuf\.Duration'$/.test(
          upstream.creation ?? upstream.error ?? "",
        )),
  },
  {
    reason:
      "from 1.37 on, indexOf and lastIndexOf check their offset for an empty text; older versions return the offset",
    until: "1.36",
    matches: ({ kind, task, postern }) =>
      /ndexOf\(.+, /.test(getText(task)) &&
      (kind === "value" || postern.error?.includes("index out of range: ") === true),
  },
  {
    reason: "from 1.37 on, a name with a dot is global, and a macro's variable doesn't hide this name",
    until: "1.36",
    matches: ({ task }) => globalName.test(getText(task)),
  },
  {
    reason: "1.37 doesn't look for the name of a message among variables",
    until: "1.36",
    matches: ({ upstream }) => upstream.issues?.includes("' is not a type") === true,
  },
  {
    reason: "a time zone that is a folder of Go's files, such as America/.",
    matches: ({ upstream, postern }) =>
      upstream.error === "is a directory" && postern.error?.startsWith("unknown time zone ") === true,
  },
];

/** Returns the reason why a difference is accepted; undefined if the difference isn't known. */
export const findKnownReason = (difference: Difference, print: (value: unknown) => string): string | undefined =>
  knownDifferences.find(
    ({ until = difference.minor, matches }) =>
      parseMinor(difference.minor) <= parseMinor(until) && matches(difference, print),
  )?.reason;
