import type { Difference } from "./judge.ts";

/** A difference that stays, and why. */
interface KnownDifference {
  reason: string;
  isMeant(difference: Difference, print: (value: unknown) => string): boolean;
}

/** Names of cel-go and Go for the types of lists, maps and null. */
const goTypes =
  /\*types\.(?:baseList|concatList|baseMap)|types\.Null|<nil>|\[\](?:interface \{\}|ref\.Val)|map\[\w+(?:\.\w+)?\](?:interface \{\}|ref\.Val)/g;

const differsOnlyIn = ({ upstream, own }: Difference, pattern: RegExp) =>
  upstream.error !== own.error && upstream.error?.replace(pattern, "") === own.error?.replace(pattern, "");

export const knownDifferences: readonly KnownDifference[] = [
  {
    reason: "an error names Go's type of a list, a map or null, which depends on where the value comes from",
    isMeant: (difference) => differsOnlyIn(difference, goTypes),
  },
  {
    reason: "an error has a quantity, which upstream writes in the canonical form if it is a sum or large",
    isMeant: (difference) => differsOnlyIn(difference, /\(\*resource\.Quantity\)\S+/g),
  },
  {
    reason: "an error has a value of a library that upstream couldn't convert twice, so that it has the error twice",
    isMeant: (difference) =>
      differsOnlyIn(difference, /unsupported conversion to ref\.Val: \(\*errors\.errorString\)/g),
  },
  {
    reason: "lists and maps that are keys of a map: Go compares them by their places in memory",
    isMeant: ({ upstream, own }, print) =>
      [upstream, own].some(
        ({ error, value }) => /insert failed: key [[{]/.test(error ?? "") || /\[\[(?:\[|\{"map")/.test(print(value)),
      ),
  },
  {
    reason: "a field that JSONPatch doesn't have: it has no type in upstream, and any other error is refused as well",
    isMeant: ({ task, upstream, own }) =>
      /JSONPatch/.test([task.expression, ...task.composed.map(({ expression }) => expression)].join(" ")) &&
      [upstream, own].every(({ error, issues, creation }) => error ?? issues ?? creation) &&
      [upstream, own].some(({ error = "", issues = "", creation = "" }) =>
        /missing type conversion to proto|'[^']*\(?\)?[(,]? ?[,)]|''|\(\)'/.test(error + issues + creation),
      ),
  },
  {
    reason: "a regular expression that @bufbuild/re2 doesn't know: Go reads names of Unicode classes in any case",
    isMeant: ({ task, own }) =>
      /\\p/i.test(task.expression) &&
      /error parsing regexp|invalid \w+ argument/.test(own.creation ?? own.issues ?? ""),
  },
  {
    reason: "the history of the time zone EST: Node's data has it from Panama",
    isMeant: ({ task }) => task.expression.includes("'EST'"),
  },
];
