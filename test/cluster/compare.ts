import type { Turn } from "./player.ts";

/** Fields in which any two servers differ: that they are there is compared, what they say is not. */
const ownToServer: Record<string, string> = {
  uid: "made for each object",
  resourceVersion: "counts the writes of a server",
  creationTimestamp: "a time",
  deletionTimestamp: "a time",
  startTime: "a time",
  lastTransitionTime: "a time",
  lastProbeTime: "a time",
  lastUpdateTime: "a time",
  lastPhaseTransitionTime: "a time",
  observedGeneration: "may follow a write of the server's own",
  clusterIP: "drawn at random",
  clusterIPs: "drawn at random",
  nodePort: "drawn at random",
};

/** Left out: the times in it, and who changed what on the way, which is told of a webhook as of a plugin. */
const leftOut = new Set(["managedFields"]);

/** Drawn at random or not, these say something by themselves. */
const telling = new Set(["None", ""]);

/** An answer as far as two servers must agree on it. */
export interface Comparable {
  code: number;
  warnings: string[];
  body: unknown;
}

export const comparable = ({ answer, name }: Turn, sequence: string): Comparable => {
  const said = JSON.stringify(answer.body, (key, value) => {
    if (leftOut.has(key)) return undefined;
    return Object.hasOwn(ownToServer, key) && value !== undefined && !telling.has(value) ? "?" : value;
  });
  const plain = anonymous(said.replace(/admission webhook \\"[^"]+\\" denied the request: /g, ""), name, sequence)
    // Go's diffs put in spaces of another width, in half of all processes, so that nobody reads them by machine.
    .replaceAll("\u00a0", " ");
  const body = inOrder(JSON.parse(plain));
  return { code: answer.code, warnings: answer.warnings.map((text) => anonymous(text, name, sequence)), body };
};

/** What API validation finds in a map, and what a patch has twice, is told in an order that Go leaves to chance. */
const inOrder = (body: Record<string, unknown>) => {
  // A list goes by names, of which the API server made some.
  if (Array.isArray(body.items)) return { ...body, items: body.items.map(canonical).sort() };
  const message = String(body.message);
  const details: { causes?: Cause[] } = Object(body.details);
  const texts = [...new Set(details.causes?.map(({ field, message }) => `${field}: ${message}`))];
  const told = `[${texts.join(", ")}]`;
  if (details.causes && texts.length > 1 && message.endsWith(told)) {
    const causes = details.causes.toSorted((one, other) => (canonical(one) < canonical(other) ? -1 : 1));
    return { ...body, message: message.slice(0, -told.length), details: { ...details, causes } };
  }
  const [start, ...errors] = message.split(": errors:\n");
  return errors.length > 0 ? { ...body, message: [start, ...errors.join("\n").split("\n").sort()].join("\n") } : body;
};

interface Cause {
  field?: string;
  message?: string;
}

/** The suffix of a generated name is drawn at random. */
const anonymous = (text: string, name: string, sequence: string) =>
  (name === sequence ? text : text.replaceAll(name, `${sequence}-?`)).replaceAll(
    new RegExp(`\\b${sequence}-[bcdfghjklmnpqrstvwxz2456789]{5}\\b`, "g"),
    `${sequence}-?`,
  );

/** A difference that is meant to be, and why. */
interface Known {
  reason: string;
  /** The two as they are when it is taken away; undefined where it isn't there. */
  applies(wanted: Comparable, actual: Comparable): boolean;
}

/** Every difference that there may be. */
export const knownDifferences: Known[] = [
  {
    reason: "what upstream answers as a bare 500 is 403 Forbidden here, with the same text",
    applies: (wanted, actual) => {
      const [said, ours] = [Object(wanted.body), Object(actual.body)];
      return (
        wanted.code === 500 &&
        said.reason === undefined &&
        actual.code === 403 &&
        ours.reason === "Forbidden" &&
        same(wanted.warnings, actual.warnings) &&
        said.message === ours.message
      );
    },
  },
  {
    reason:
      "API validation tells an empty list or map from none in its message, which an object that was patched does not",
    applies: (wanted, actual) => wanted.code === 422 && same(withoutEmptiness(wanted), withoutEmptiness(actual)),
  },
  {
    reason: "tolerations stand in another order, since a webhook speaks after all plugins",
    applies: (wanted, actual) => wanted.code < 300 && same(sortedTolerations(wanted), sortedTolerations(actual)),
  },
];

/** Texts without what they show of an object where that is empty, and without what has changed in it. */
const withoutEmptiness = (value: unknown) =>
  JSON.parse(JSON.stringify(value), (_, value) =>
    typeof value === "string" ? value.replace(/\n@@ -[\s\S]*/, "").replace(/(?<= value: )(\[\]|\{\})/g, "null") : value,
  );

const sortedTolerations = (value: unknown) =>
  JSON.parse(JSON.stringify(value), (key, value) =>
    key === "tolerations" && Array.isArray(value) ? value.map((one) => JSON.stringify(one)).sort() : value,
  );

const same = (one: unknown, other: unknown) => canonical(one) === canonical(other);

/** With the members of objects in one order. */
const canonical = (value: unknown): string =>
  JSON.stringify(value, (_, inner) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  );

export type Comparison = { verdict: "equal" } | { verdict: "known"; reason: string } | { verdict: "different" };

export const compare = (wanted: Comparable, actual: Comparable): Comparison => {
  if (same(wanted, actual)) return { verdict: "equal" };
  const known = knownDifferences.find(({ applies }) => applies(wanted, actual));
  return known ? { verdict: "known", reason: known.reason } : { verdict: "different" };
};

/** Lines that both have, those of the first alone with `-`, those of the second with `+`; what is far from both is left out. */
export const diffOf = (wanted: Comparable, actual: Comparable): string => {
  const [one, other] = [wanted, actual].map((value) => readable(value));
  return intoDiff(one ?? [], other ?? []);
};

/** Texts of several lines as lines of their own. */
const readable = (value: Comparable) =>
  JSON.stringify(JSON.parse(canonical(value)), null, 2)
    .replaceAll("\\n", "\n    | ")
    .split("\n");

const intoDiff = (one: string[], other: string[]): string => {
  // The longest common subsequence, from the end.
  const lengths = Array.from({ length: one.length + 1 }, () => new Array<number>(other.length + 1).fill(0));
  const length = (row: number, column: number) => lengths[row]?.[column] ?? 0;
  for (let row = one.length - 1; row >= 0; row--)
    for (let column = other.length - 1; column >= 0; column--)
      (lengths[row] ?? [])[column] =
        one[row] === other[column]
          ? length(row + 1, column + 1) + 1
          : Math.max(length(row + 1, column), length(row, column + 1));
  const lines: string[] = [];
  let [row, column] = [0, 0];
  while (row < one.length || column < other.length) {
    if (row < one.length && one[row] === other[column]) {
      lines.push(`  ${one[row]}`);
      row += 1;
      column += 1;
    } else if (column >= other.length || (row < one.length && length(row + 1, column) >= length(row, column + 1))) {
      lines.push(`- ${one[row]}`);
      row += 1;
    } else {
      lines.push(`+ ${other[column]}`);
      column += 1;
    }
  }
  const near = (index: number) => lines.slice(Math.max(0, index - 2), index + 3).some((line) => !line.startsWith("  "));
  return lines.filter((_, index) => near(index)).join("\n");
};
