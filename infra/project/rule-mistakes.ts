// This file finds what `postern test` and `postern build` refuse in rules: wrong definitions, and code that uses more
// than a rule may use.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { isMap, type JsonMap, toList, toMap } from "#lib/json.ts";
import type { Need, ResourceType } from "#lib/needs.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { Rule } from "#lib/rule.ts";
import { listKindsOfAllMinors } from "../apiserver/kinds/kinds.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { findImpurities } from "../catalogue/rule-purity.ts";
import { findShapeMistakes, formatPath, listMatchElements } from "../catalogue/rule-shape.ts";
import {
  type DefinitionMistake,
  formatRuleMistake,
  locateMistakes,
  type MemberPath,
  type RuleMistake,
} from "../catalogue/rule-source.ts";
import { posternCatalogue } from "../catalogue/sources.ts";
import { Complaint, requireComplaint } from "../cli/complaint.ts";
import { describeKnownWords, findClosest } from "../cli/did-you-mean.ts";
import { readInput } from "../manifests/input.ts";
import { definitionFile } from "./custom-kind.ts";
import { listConfigPaths } from "./project.ts";

/** A resource of the API, such as `pods`, or a part of one, such as `pods/exec`. */
type ApiResource = Required<ResourceType>;

/** Returns the resources of all known minor versions, and those of CustomResourceDefinitions among the manifests. */
const listApiResources = (manifests: readonly unknown[]): ApiResource[] =>
  listKindsOfAllMinors(manifests).flatMap(({ resource, subresources }) =>
    ["", ...subresources.map((name) => `/${name}`)].map((name) => ({
      ...resource,
      resource: resource.resource + name,
    })),
  );

/**
 * Finds mistakes in rules, and warnings. Postern's own rules are left out, because its tests check them. Kinds that
 * rules name may be defined in `manifests`, or in the file crd.yaml in a rule's folder.
 */
export const findRuleMistakes = async (
  rules: readonly CatalogueRule[],
  manifests: readonly unknown[],
): Promise<Map<CatalogueRule, RuleMistake[]>> => {
  const definitions = await readPresent(rules.map(({ folder }) => join(folder, definitionFile)));
  const api = listApiResources([...manifests, ...definitions]);
  const found = rules
    .filter(({ source }) => source !== posternCatalogue)
    .map(async (listed): Promise<[CatalogueRule, RuleMistake[]]> => {
      const mistakes = [...findShapeMistakes(listed.rule), ...findApiMistakes(listed.rule, api)];
      // Several elements of `match` may have the same mistake, which is reported once.
      const distinct = [...Map.groupBy(mistakes, ({ sentence }) => sentence).values()].flatMap(
        ([first]) => first ?? [],
      );
      const located = [...(await locateMistakes(listed, distinct)), ...(await findImpurities(listed))];
      const byLine = (left: RuleMistake, right: RuleMistake) =>
        Number(left.file > right.file) - Number(left.file < right.file) || left.line - right.line;
      return [listed, located.sort(byLine)];
    });
  return new Map(await Promise.all(found));
};

/** Throws a Complaint if rules have mistakes. Returns the warnings. */
export const requireValidRules = async (rules: readonly CatalogueRule[], file: string): Promise<string[]> => {
  const all = [...(await findRuleMistakes(rules, await readConfigManifests(file))).values()].flat();
  const [mistakes, warnings] = [all.filter(({ isWarning }) => !isWarning), all.filter(({ isWarning }) => isWarning)];
  if (mistakes.length > 0) throw new Complaint(mistakes.map(formatRuleMistake).join("\n"));
  return warnings.map(formatRuleMistake);
};

/** Returns the objects in the manifests that a postern.yaml names. Ignores manifests that can't be read. */
export const readConfigManifests = async (file: string): Promise<unknown[]> =>
  readPresent(existsSync(file) ? (await listConfigPaths(file)).manifests : []);

/** Returns the objects in files. A file that doesn't exist or can't be read has none. */
const readPresent = async (paths: readonly string[]): Promise<unknown[]> => {
  const all = paths.map((path) => readInput([path]).then(({ manifests }) => manifests, ignoreComplaint));
  return (await Promise.all(all)).flat().map(({ object }) => object);
};

const ignoreComplaint = (error: unknown): [] => {
  requireComplaint(error);
  return [];
};

/** Finds groups, versions and resources in a rule's match and needs that don't exist in Kubernetes. */
const findApiMistakes = (rule: Rule, api: readonly ApiResource[]): DefinitionMistake[] => [
  ...listMatchElements(rule).elements.flatMap(({ path, element }) => findMistakesOfElement(path, toMap(element), api)),
  ...Object.entries(rule.needs ?? {}).flatMap(([name, need]) => findMistakesOfNeed(["needs", name], need, api)),
];

/** Returns the groups, versions and resources in an element of `match` that Kubernetes doesn't have. */
const findMistakesOfElement = (
  path: MemberPath,
  element: JsonMap,
  api: readonly ApiResource[],
): DefinitionMistake[] => {
  const readWords = (member: string): WordInMatch[] =>
    // What is no text is a mistake of the shape, which is reported already.
    toList(element[member]).flatMap((word, index) => (isText(word) ? { word, at: [...path, member, index] } : []));
  const [groups, versions, resources] = [readWords("apiGroups"), readWords("apiVersions"), readWords("resources")];
  if ([groups, versions, resources].some(({ length }) => length === 0)) return [];
  const unknownGroups = findUnknown(groups, listWords(api, "group"));
  // For an unknown group, versions and resources can't be checked.
  if (unknownGroups.length > 0)
    return unknownGroups.map(({ word, at }) => {
      const names = resources.map(({ word }) => word);
      return { path: at, ...describeUnknownGroup(formatPath(at.slice(0, -1)), { group: word, resources: names }, api) };
    });

  const inGroups = api.filter(({ group }) => groups.some(({ word }) => matchesWord(word, group)));
  const versionNames = listWords(inGroups, "version");
  const unknownVersions = findUnknown(versions, versionNames);
  if (unknownVersions.length > 0)
    return unknownVersions.map(({ word, at }) => {
      const advice = describeKnownWords(word, versionNames);
      return complain(at, word, `a version that the group does not have; ${advice}`);
    });

  const candidates = inGroups.filter(({ version }) => versions.some(({ word }) => matchesWord(word, version)));
  // With the group "*", the resource may be a custom one.
  const isWarning = groups.some(({ word }) => word === "*");
  const places = isWarning ? "Kubernetes" : [...new Set(candidates.map(joinApiVersion))].join(" or ");
  return findUnknown(resources, listWords(candidates, "resource"), matchesResource).map(({ word, at }) => {
    const meantResource = findRightResource(word, candidates, api);
    const advice =
      meantResource && !candidates.includes(meantResource)
        ? describePlace(meantResource)
        : describeKnownWords(word, listWords(candidates, "resource"));
    return { ...complain(at, word, `which is not in ${places}; ${advice}`), isWarning };
  });
};

const isText = (value: unknown) => typeof value === "string";

/** A group, version or resource in a rule's `match`, or the wildcard `*`, with its path. */
interface WordInMatch {
  word: string;
  at: MemberPath;
}

/** Returns the words that match none of the known names, such as resources of Kubernetes. */
const findUnknown = (
  words: readonly WordInMatch[],
  knownNames: readonly string[],
  matchesName = matchesWord,
): WordInMatch[] => words.filter(({ word }) => !knownNames.some((name) => matchesName(word, name)));

const complain = (path: MemberPath, word: string, sentence: string): DefinitionMistake => {
  return { path, sentence: `${formatPath(path.slice(0, -1))} has ${JSON.stringify(word)}, ${sentence}` };
};

/** Returns what is wrong with a member of the rule's `needs`, such as an unknown resource. */
const findMistakesOfNeed = (path: MemberPath, need: unknown, api: readonly ApiResource[]): DefinitionMistake[] => {
  const place = formatPath(path);
  if (!isMap(need) || typeof need.bind !== "function")
    return [{ path, sentence: `${place} must be what a function of postern/needs returns, such as get("pods")` }];
  const { kind } = need as unknown as Need<unknown>;
  if (kind === undefined) return [];
  const { group, resource, version = "v1" } = kind;
  if (!listWords(api, "group").includes(group))
    return [{ path, ...describeUnknownGroup(place, { group, resources: [resource] }, api) }];
  const candidates = api.filter((known) => known.group === group && known.version === version);
  if (candidates.some((known) => known.resource === resource)) return [];
  const meantResource = findRightResource(resource, candidates, api);
  const apiVersion = joinApiVersion({ group, version });
  const advice = meantResource
    ? `write ${formatResourceType(meantResource)}`
    : `${listWords(candidates, "resource").join(", ")} exist`;
  return [{ path, sentence: `${place} has ${JSON.stringify(resource)}, which is not in ${apiVersion}; ${advice}` }];
};

/** Describes a group that Kubernetes doesn't have. With a dot in the name, it may be a custom one: a warning. */
const describeUnknownGroup = (
  place: string,
  { group, resources }: { group: string; resources: readonly string[] },
  api: readonly ApiResource[],
): Omit<DefinitionMistake, "path"> => {
  const known = listWords(api, "group");
  const near = findClosest(group, known);
  const name = JSON.stringify(group);
  if (group.includes(".")) {
    const advice = near === undefined ? "its resources are not checked" : `did you mean ${near}?`;
    const sentence = `the group ${name} is neither in Kubernetes, nor in the rule's crd.yaml, nor in the manifests that postern.yaml names; ${advice}`;
    return { sentence, isWarning: true };
  }
  const alike = near === undefined ? api.find(({ resource }) => resources.includes(resource)) : undefined;
  const advice = alike ? describePlace(alike) : describeKnownWords(group, known);
  return { sentence: `${place} has ${name}, a group that no version of Kubernetes has; ${advice}` };
};

const describePlace = ({ group, version, resource }: ApiResource) =>
  `${resource} is in the group ${JSON.stringify(group)}, version ${version}`;

const formatResourceType = ({ group, version, resource }: ApiResource) =>
  `{ group: "${group}", resource: "${resource}"${version === "v1" ? "" : `, version: "${version}"`} }`;

/**
 * Returns the resource that a wrong word probably means: one of this name in another group, or else the most similar
 * name among the candidates, or else among all resources.
 */
const findRightResource = (
  word: string,
  candidates: readonly ApiResource[],
  api: readonly ApiResource[],
): ApiResource | undefined => {
  const findNamed = (name: string | undefined, all: readonly ApiResource[]) =>
    all.find(({ resource }) => resource === name);
  const findNear = (all: readonly ApiResource[]) => findNamed(findClosest(word, listWords(all, "resource")), all);
  return findNamed(word, api) ?? findNear(candidates) ?? findNear(api);
};

const listWords = (resources: readonly ApiResource[], member: keyof ApiResource) => [
  ...new Set(resources.map((resource) => resource[member])),
];

const matchesWord = (word: string, name: string) => word === "*" || word === name;

/** Reports whether a word in a match, such as `pods/*`, selects a resource, such as `pods/scale`. */
const matchesResource = (word: string, resource: string): boolean => {
  const [wordName = "", wordPart = ""] = word.split("/");
  const [name = "", part = ""] = resource.split("/");
  return matchesWord(wordName, name) && matchesWord(wordPart, part);
};
