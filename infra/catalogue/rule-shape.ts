// This file checks the definition of a rule when it is loaded. TypeScript checks it only in an editor or with tsc.
import { isMap, toMap } from "#lib/json.ts";
import { getVariants, type RequestMatch, type Rule, type RuleVariant } from "#lib/rule.ts";
import { toSentence } from "../cli/complaint.ts";
import { describeKnownWords } from "../cli/did-you-mean.ts";
import {
  anyShape,
  createEnumShape,
  createMapShape,
  findMisfits,
  flagShape,
  type InputShape,
  mapShape,
  numberShape,
  textShape,
} from "../cli/shape.ts";
import { truncateText } from "../cli/terminal.ts";
import type { DefinitionMistake, MemberPath } from "./rule-source.ts";

const functionShape: InputShape = { expected: "a function", meetsCondition: (value) => typeof value === "function" };

/** The members that a rule and each of its variants may have. */
const entryMembers: Record<keyof RuleVariant<object> & keyof Rule, InputShape> = {
  match: anyShape,
  matchConditions: anyShape,
  matchPolicy: createEnumShape("Equivalent or Exact", "Equivalent", "Exact"),
  namespaceSelector: anyShape,
  objectSelector: anyShape,
  // `guards` marks a rule for security: `deploy --harden` sets its failurePolicy to Fail. Unless it has `everywhere`,
  // it then isn't called in namespaces such as kube-system. Only `guards` can be false: a variant may turn it off.
  guards: flagShape,
  everywhere: createEnumShape("true", true),
  timeoutSeconds: numberShape,
  reinvocationPolicy: createEnumShape("Never", "Never"),
  settings: mapShape,
};

/** The members that a rule's definition may have, for checks of definitions in plain JavaScript. */
const ruleMembers: Record<keyof Rule, InputShape> = {
  ...entryMembers,
  authorizedBy: anyShape,
  sideEffects: createEnumShape("None or NoneOnDryRun", "None", "NoneOnDryRun"),
  summary: textShape,
  order: numberShape,
  upstreamPlugin: mapShape,
  choices: mapShape,
  elements: mapShape,
  manifests: mapShape,
  kubeconfigs: mapShape,
  inspectForSettings: functionShape,
  checkSettings: functionShape,
  compileExpressions: functionShape,
  exemptionRequired: flagShape,
  variants: anyShape,
  since: mapShape,
  needs: mapShape,
  exactIntegers: createEnumShape("true", true),
  mutate: functionShape,
  validate: functionShape,
  reconcile: functionShape,
  suggest: functionShape,
};

const variantMembers: Record<keyof RuleVariant<object>, InputShape> = {
  ...entryMembers,
  name: textShape,
  failurePolicy: createEnumShape("Fail or Ignore", "Fail", "Ignore"),
  native: anyShape, // a policy for the API server to evaluate; lib/admission-policies builds it, so it needs no check
};

const nonEmptyListShape: InputShape = {
  expected: "a list of one or more texts",
  type: "array",
  items: { type: "string" },
  meetsCondition: (value) => Array.isArray(value) && value.length > 0,
};

const elementMembers: Record<keyof RequestMatch, InputShape> = {
  apiGroups: nonEmptyListShape,
  apiVersions: nonEmptyListShape,
  resources: nonEmptyListShape,
  operations: nonEmptyListShape,
  scope: createEnumShape("*, Cluster or Namespaced", "*", "Cluster", "Namespaced"),
};

const operations = ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"];

/** An element of the `match` of a rule or a variant, and its path in the definition. */
interface MatchElement {
  path: MemberPath;
  element: unknown;
}

/** Returns the elements of a rule's `match` with its default settings, or why the `match` fails. */
export const listMatchElements = (rule: Rule): { elements: MatchElement[]; failure?: string } => {
  const settings = rule.settings ?? {};
  try {
    const variants = (getVariants(rule, settings) ?? []).map(({ match }, index) => ({
      match,
      at: ["variants", index],
    }));
    const elements = [{ match: rule.match, at: [] }, ...variants].flatMap(({ match, at }) => {
      const value: unknown = typeof match === "function" ? match(settings) : match;
      return listElementsOfMatch(value, [...at, "match"]);
    });
    return { elements };
  } catch (error) {
    return { elements: [], failure: toSentence(error) };
  }
};

/** Lists the elements of a `match`, which is a list of elements, or has such a list for each phase. */
const listElementsOfMatch = (match: unknown, path: MemberPath): MatchElement[] =>
  Array.isArray(match)
    ? match.map((element: unknown, index) => ({ path: [...path, index], element }))
    : ["mutate", "validate"].flatMap((phase) => {
        const { [phase]: elements } = toMap(match);
        return Array.isArray(elements) ? listElementsOfMatch(elements, [...path, phase]) : [];
      });

/** Reports whether a rule has a match that requests can be compared with. */
const hasMatch = ({ match, variants }: Partial<Rule>): boolean =>
  typeof match === "function" ||
  // An empty list matches nothing, unless the entries of variants have lists of their own.
  (Array.isArray(match) && (match.length > 0 || variants !== undefined)) ||
  ["mutate", "validate"].some((phase) => Array.isArray(toMap(match)[phase]));

/** Finds mistakes in the definition of a rule: unknown members, wrong values, and a missing `match`. */
export const findShapeMistakes = (rule: Rule): DefinitionMistake[] => {
  const mistakes = findMistakesOfMap(rule, ruleMembers, []);
  if (hasMatch(rule)) return [...mistakes, ...findMatchMistakes(rule)];
  const isMisspelt = mistakes.some(({ sentence }) => sentence.endsWith("did you mean match?"));
  const sentence = `the rule must have a match, a list of the requests that the rule is for: [${example}]`;
  return isMisspelt ? mistakes : [...mistakes, { path: "match" in rule ? ["match"] : [], sentence }];
};

const example = '{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }';

/** Returns what is wrong with the rule's `match` and `variants` under its default settings. */
const findMatchMistakes = (rule: Rule): DefinitionMistake[] => {
  const { elements, failure } = listMatchElements(rule);
  if (failure !== undefined)
    return [{ path: ["match"], sentence: `match fails with the default settings: ${failure}` }];
  const variants = getVariants(rule, rule.settings ?? {}) ?? [];
  return [
    ...variants.flatMap((variant, index) => findMistakesOfMap(variant, variantMembers, ["variants", index])),
    ...elements.flatMap(findMistakesOfElement),
  ];
};

/** Returns what is wrong with one element of `match`, such as an unknown operation. */
const findMistakesOfElement = ({ path, element }: MatchElement): DefinitionMistake[] => {
  const place = formatPath(path);
  if (!isMap(element))
    return [{ path, sentence: `${place} must be a map like ${example}, not ${formatValue(element)}` }];
  const missing = ["apiGroups", "apiVersions", "resources", "operations"].filter((key) => element[key] === undefined);
  const mistakes = findMistakesOfMap(element, elementMembers, path);
  if (missing.length > 0 && mistakes.length === 0)
    mistakes.push({ path, sentence: `${place} must have ${missing.join(", ")}, like ${example}` });
  const unknown = (Array.isArray(element.operations) ? element.operations : []).flatMap((operation: unknown, index) =>
    typeof operation !== "string" || operations.includes(operation)
      ? []
      : [
          {
            path: [...path, "operations", index],
            sentence: `${place}.operations has ${JSON.stringify(operation)}; ${describeKnownWords(operation, operations)}`,
          },
        ],
  );
  return [...mistakes, ...unknown];
};

/** Returns the members of a map that are unknown or have wrong values; `start` is the path to the map. */
const findMistakesOfMap = (
  value: object,
  members: Readonly<Record<string, InputShape>>,
  start: MemberPath,
): DefinitionMistake[] => {
  // A member with the value undefined counts as absent.
  const present = Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined));
  return findMisfits(present, createMapShape(members)).map(({ path: [key = ""], known: knownMembers, expected }) => {
    const path = [...start, key];
    const isUnknownMember = knownMembers !== undefined;
    const sentence = isUnknownMember
      ? `${formatPath(start)} has no member ${JSON.stringify(key)}; ${describeKnownWords(key, knownMembers)}`
      : `${formatPath(path)} must be ${expected}, not ${formatValue(toMap(value)[key])}`;
    return { path, sentence };
  });
};

export const formatPath = (path: MemberPath): string => path.join(".") || "the rule";

const formatValue = (value: unknown): string =>
  typeof value === "function" ? "a function" : truncateText(JSON.stringify(value) ?? String(value), 100);
