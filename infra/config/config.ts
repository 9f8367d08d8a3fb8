import { readFile } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { type Document, isMap, isNode, isSeq, LineCounter, parseDocument } from "yaml";
import type { Mode } from "#lib/decide.ts";
import type { Share } from "#lib/endpoint.ts";
import { type Rule, variantsOf, type Written } from "#lib/rule.ts";
import { type Mistake, merge, mistakes } from "#lib/settings.ts";
import type { Variants } from "#lib/variant.ts";
import { type File, readFiles } from "../apiserver/manifest-cluster.ts";
import { type Broken, isName, type Listed } from "../catalogue/registry.ts";
import { Complaint, sentenceOf } from "../cli/complaint.ts";
import { didYouMean, findRule } from "../cli/names.ts";
import { asRule, disagreements, type Group, groupShareOf } from "../webhooks/groups.ts";
import { type Connect, connectKeys, placeOf, unfitConnect } from "./connections.ts";
import { type Keeping, keepingOf, recordKeys, unfitKeeping } from "./recording.ts";

/** Requests that a rule's entry never sees. Any one exempts. */
export interface Exempt {
  namespaces?: string[];
  namespaceLabels?: Record<string, string>;
  users?: string[];
  groups?: string[];
}

/** What postern.yaml says of one rule in one cluster, everything filled in. */
export interface Setup {
  mode: Mode;
  failurePolicy?: "Fail" | "Ignore";
  timeoutSeconds?: number;
  exempt?: Exempt;
  /** Where its function records reviews; nowhere, if not said. */
  record?: Keeping;
  settings: object;
}

/** The same on its way: where it was said, and whether its settings have the wrong shape. */
interface Said extends Omit<Setup, "record"> {
  /** Off where a more general place said where. */
  record?: Keeping | "off";
  place: Path;
  settingsPlace?: Path | undefined;
  wrong: boolean;
}

export interface Cluster {
  /** Those that functions accept; the last is the one in use. */
  keyVersions: number[];
  /** By rule; a rule that postern.yaml doesn't name for this cluster isn't here. */
  rules: Map<string, Setup>;
  /** The same in every cluster, for their Lambdas are. */
  groups: Group[];
  /** The way to its API, for rules that ask it something. */
  connect?: Connect;
}

export interface Config {
  clusters: Map<string, Cluster>;
  groups: Group[];
}

export const configFile = fileURLToPath(new URL("../../postern.yaml", import.meta.url));

type Path = (string | number)[];
type Fields = Record<string, unknown>;

/** By how postern.yaml names them: the files of manifests that settings take their objects from, or why there are none. */
type Places = ReadonlyMap<string, File[] | string>;

/**
 * Reads postern.yaml against the catalogue. All that is wrong with it is said at once, each with its line. Of rules that can't
 * be loaded, everything but the settings is read.
 */
export const readConfig = async (
  file: string,
  catalogue: Listed[],
  broken: readonly Broken[] = [],
): Promise<Config> => {
  const name = basename(file);
  const text = await readFile(file, "utf8").catch((error) => {
    throw new Complaint(`${name} can't be read: ${sentenceOf(error)}`);
  });
  const found = placesIn(text, catalogue).map(async (place) => {
    const files = await readFiles(placeOf(place, dirname(file))).catch(sentenceOf);
    return [place, files] as const;
  });
  return parseConfig(text, catalogue, name, new Map(await Promise.all(found)), broken);
};

/** The files and folders of manifests that a postern.yaml names, for settings of these rules or in a cluster's place. */
export const placesNamed = async (file: string, catalogue: Listed[]): Promise<string[]> => {
  const text = await readFile(file, "utf8");
  const { clusters } = Object(parseDocument(text, { prettyErrors: false, logLevel: "silent" }).toJS());
  const standing = Object.values(Object(clusters)).map((one) => Object(Object(one).connect).manifests);
  const all = [...placesIn(text, catalogue), ...standing.filter((one) => typeof one === "string")];
  return [...new Set(all.map((place) => placeOf(place, dirname(file))))];
};

/** Where settings of these rules name files or folders; whatever else is wrong with the text is said later. */
const placesIn = (text: string, catalogue: Listed[]): string[] => {
  const { rules, clusters } = Object(parseDocument(text, { prettyErrors: false, logLevel: "silent" }).toJS());
  const all = [rules, ...Object.values(Object(clusters)).map((one) => Object(one).rules)];
  const settings = catalogue.flatMap(({ name, rule }) =>
    Object.keys(rule.manifests ?? {}).flatMap((key) =>
      all
        .flatMap((one) => Object.entries(Object(one)))
        .map(([given, said]) => (findRule(given, [name]) ? Object(Object(said).settings)[key] : undefined)),
    ),
  );
  return [...new Set(settings.flat().filter((one) => typeof one === "string"))];
};

export const parseConfig = (
  text: string,
  catalogue: Listed[],
  name = "postern.yaml",
  places: Places = new Map(),
  broken: readonly Broken[] = [],
): Config => {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [fault] = document.errors;
  if (fault) throw new Complaint(`${name}:${lines.linePos(fault.pos[0]).line} is no YAML: ${fault.message}`);
  const given = plain(document, name);
  // A save that was cut off leaves an empty file, which doesn't mean that all rules are to be turned off.
  if (given === null)
    throw new Complaint(`${name} is empty; it must name the rules that are on, or say "rules: {}" if none is`);
  const found: Mistake[] = [];
  const config = interpret(given, catalogue, found, places, broken);
  if (found.length === 0) return config;

  const lineOf = (path: Path): number => {
    let node: unknown = document.contents;
    let offset = 0;
    const startOf = (place: unknown) => (isNode(place) ? (place.range?.[0] ?? offset) : offset);
    for (const key of path) {
      if (isSeq(node)) {
        node = node.items[Number(key)];
        offset = startOf(node);
        continue;
      }
      const pair = isMap(node) ? node.items.find((item) => String(item.key) === String(key)) : undefined;
      if (pair === undefined) break;
      offset = startOf(pair.key);
      node = pair.value;
    }
    return lines.linePos(offset).line;
  };
  throw new Complaint(
    found
      .map(({ path, sentence }) =>
        [`${name}:${lineOf(path)}`, ...(path.length > 0 ? [path.join(".")] : []), sentence].join(" "),
      )
      .join("\n"),
  );
};

/** Aliases are followed here: to nowhere, or without end. */
const plain = (document: Document, name: string): unknown => {
  try {
    return document.toJS();
  } catch (error) {
    throw new Complaint(`${name} is no YAML: ${sentenceOf(error)}`);
  }
};

const modes: unknown[] = ["enforce", "warn", "audit", "off"];
const dnsLabel = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** A cluster's name becomes part of a path. */
export const isCluster = (name: string): boolean => dnsLabel.test(name);

const labelKey = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$/;
const labelValue = /^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$/;

const interpret = (
  given: unknown,
  catalogue: Listed[],
  found: Mistake[],
  places: Places,
  broken: readonly Broken[],
): Config => {
  const names = [...catalogue, ...broken].map(({ name }) => name);
  const complain = (path: Path, sentence: string) => void found.push({ path, sentence });
  const map = (value: unknown, path: Path, keys?: string[]): Fields => {
    if (value === null || value === undefined) return {};
    if (typeof value !== "object" || Array.isArray(value)) {
      complain(path, "must be a map");
      return {};
    }
    for (const key of Object.keys(value))
      if (keys && !keys.includes(key)) complain([...path, key], `is unknown; one of ${keys.join(", ")} is expected`);
    return value as Fields;
  };
  const texts = (value: unknown, path: Path): string[] | undefined => {
    if (value === undefined) return undefined;
    if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value;
    complain(path, "must be a list of texts");
    return undefined;
  };

  const exempt = (value: unknown, path: Path): Exempt | undefined => {
    if (value === undefined) return undefined;
    const { namespaces, namespaceLabels, users, groups } = map(value, path, [
      "namespaces",
      "namespaceLabels",
      "users",
      "groups",
    ]);
    const labels = map(namespaceLabels, [...path, "namespaceLabels"]);
    for (const [key, label] of Object.entries(labels))
      if (typeof label !== "string" || !labelKey.test(key) || !labelValue.test(label))
        complain([...path, "namespaceLabels", key], "must be a label and its value, as Kubernetes has them");
    const names = texts(namespaces, [...path, "namespaces"]);
    for (const [index, one] of (names ?? []).entries())
      if (!dnsLabel.test(one))
        complain([...path, "namespaces", index], `must be the name of a namespace, not "${one}"`);
    return definedOnly({
      namespaces: names,
      namespaceLabels: namespaceLabels === undefined ? undefined : (labels as Record<string, string>),
      users: texts(users, [...path, "users"]),
      groups: texts(groups, [...path, "groups"]),
    });
  };

  const record = (value: unknown, path: Path): Keeping | "off" | undefined => {
    if (value === undefined || value === "off") return value;
    const said = map(value, path, [...recordKeys]);
    if (said !== value) {
      if (value === null) complain(path, "must be a map with a bucket, or off");
      return undefined;
    }
    for (const [key, sentence] of unfitKeeping(said)) complain(key === "" ? path : [...path, key], sentence);
    return keepingOf(said);
  };

  /** Objects, in the place of the files and folders that hold them. */
  const objectsIn = (value: unknown, read: (documents: readonly unknown[]) => Written, path: Path): unknown => {
    const parts: unknown[] = typeof value === "string" ? [value] : Array.isArray(value) ? value : [];
    if (parts.length === 0) return value;
    return parts.flatMap((part, index): object[] => {
      const at = typeof value === "string" ? path : [...path, index];
      const files =
        typeof part === "string" ? (places.get(part) ?? `${part} is not read here`) : [{ name: "", documents: [part] }];
      if (typeof files === "string") complain(at, files);
      return (typeof files === "string" ? [] : files).flatMap(({ name, documents }) => {
        const { objects, faults } = read(documents);
        for (const fault of faults) complain(at, name === "" ? fault : `${name}: ${fault}`);
        return objects;
      });
    });
  };

  const withObjects = ({ manifests = {} }: Rule, settings: unknown, path: Path): unknown => {
    if (typeof settings !== "object" || settings === null) return settings;
    const readers: [string, (documents: readonly unknown[]) => Written][] = Object.entries(manifests);
    const filled = readers.flatMap(([key, read]) => {
      const value: unknown = Reflect.get(settings, key);
      return value === undefined ? [] : [[key, objectsIn(value, read, [...path, key])]];
    });
    return filled.length === 0 ? settings : { ...settings, ...Object.fromEntries(filled) };
  };

  /** What one place of postern.yaml says of a rule; `before` is what a more general place said. */
  const setup = (rule: Rule | undefined, value: unknown, path: Path, before?: Said): Said => {
    let settingsPlace = before?.settingsPlace;
    const said = map(value, path, ["mode", "failurePolicy", "timeoutSeconds", "exempt", "record", "settings"]);
    if (said.mode !== undefined && !modes.includes(said.mode))
      complain([...path, "mode"], `must be one of ${modes.join(", ")}`);
    if (said.failurePolicy !== undefined && said.failurePolicy !== "Fail" && said.failurePolicy !== "Ignore")
      complain([...path, "failurePolicy"], "must be Fail or Ignore");
    const seconds = said.timeoutSeconds;
    if (seconds !== undefined && !(Number.isInteger(seconds) && Number(seconds) >= 1 && Number(seconds) <= 30))
      complain([...path, "timeoutSeconds"], "must be a whole number from 1 to 30");
    const settingsPath = [...path, "settings"];
    const own = rule && withObjects(rule, said.settings, settingsPath);
    const wrong = own == null ? [] : mistakes(rule?.settings ?? {}, own, []);
    for (const mistake of wrong) complain([...settingsPath, ...mistake.path], mistake.sentence);
    const settings = merge(before?.settings ?? rule?.settings ?? {}, own);
    if (said.settings !== undefined) settingsPlace = settingsPath;

    const { settings: _, ...general } = before ?? { mode: "enforce" as const, wrong: false };
    return {
      ...general,
      // Checked above; a wrong one never leaves here.
      ...definedOnly({
        mode: said.mode as Mode | undefined,
        failurePolicy: said.failurePolicy as Setup["failurePolicy"],
        timeoutSeconds: seconds as number | undefined,
        exempt: exempt(said.exempt, [...path, "exempt"]),
        record: record(said.record, [...path, "record"]),
      }),
      settings,
      place: path,
      settingsPlace,
      wrong: general.wrong || wrong.length > 0,
    };
  };

  const setups = (value: unknown, path: Path, general: Map<string, Said>): Map<string, Said> => {
    const rules = new Map(general);
    const seen = new Set<string>();
    for (const [given, said] of Object.entries(map(value, path))) {
      const name = findRule(given, names);
      const here = [...path, given];
      if (name === undefined) {
        complain(here, noRule(given));
        continue;
      }
      if (seen.has(name)) complain(here, `is ${name}, which stands here already`);
      seen.add(name);
      const rule = catalogue.find((listed) => listed.name === name)?.rule;
      rules.set(name, setup(rule, said, here, general.get(name)));
    }
    return rules;
  };

  const noRule = (name: string) => {
    const suggestion = didYouMean(name, names).trim();
    return `is no rule; there is no folder functions/${name}${suggestion && `; ${suggestion}`}`;
  };

  /** What only the whole can tell: what one place leaves open, another may settle, and what is off needs nothing. */
  const settle = (rules: Map<string, Said>): Map<string, Setup> =>
    new Map(
      [...rules].map(([name, { place, settingsPlace = place, wrong, record, ...said }]) => {
        const result = { ...said, ...(record && record !== "off" && { record }) };
        const rule = catalogue.find((one) => one.name === name)?.rule;
        const on = result.mode !== "off" && !wrong;
        const unfit = on ? rule?.checkSettings?.(result.settings) : undefined;
        if (unfit !== undefined) once(settingsPlace, unfit);
        if (on && rule?.exemptionRequired && result.exempt === undefined)
          once(place, "must say under exempt who is spared: namespaces, namespaceLabels, users or groups");
        return [name, result];
      }),
    );
  const once = (path: Path, sentence: string) => {
    const said = found.some((one) => one.sentence === sentence && one.path.join() === path.join());
    if (!said) complain(path, sentence);
  };

  const connect = (value: unknown, path: Path): Connect => {
    const said = map(value, path, [...connectKeys]);
    if (said !== value) return {};
    for (const [key, one] of Object.entries(said))
      if (typeof one !== "string" || one === "") complain([...path, key], "must be a text");
    const unfit = unfitConnect(said as Connect);
    if (unfit !== undefined && Object.values(said).every((one) => typeof one === "string")) complain(path, unfit);
    return said as Connect;
  };

  /** A group with a member that can't be loaded is left out. */
  const group = (name: string, value: unknown, taken: Map<string, string>): Group[] => {
    const path = ["groups", name];
    if (!isName(name)) complain(path, "is no name for a group: lower-case letters, digits and hyphens, at most 42");
    if (findRule(name, names) !== undefined) complain(path, "is the name of a rule, too");
    const given = texts(value ?? [], path) ?? [];
    if (given.length === 0) complain(path, "must be a list of rules, with at least one");
    const members = given.flatMap((text, index) => {
      const one = findRule(text, names) ?? text;
      if (isBroken(text)) return [];
      const listed = catalogue.find((rule) => rule.name === one);
      const unfit = listed ? unfitFor(listed, taken.get(one)) : noRule(one);
      if (unfit !== undefined) complain([...path, index], `"${one}" ${unfit}`);
      taken.set(one, name);
      return listed && unfit === undefined ? [listed] : [];
    });
    return given.some(isBroken) ? [] : [{ name, members: catalogue.filter((listed) => members.includes(listed)) }];
  };
  const isBroken = (text: string) => broken.some(({ name }) => name === findRule(text, names));

  const { rules, clusters, groups } = map(given, [], ["rules", "clusters", "groups"]);
  const taken = new Map<string, string>();
  const together = Object.entries(map(groups, ["groups"])).flatMap(([name, value]) => group(name, value, taken));
  const general = setups(rules, ["rules"], new Map());
  const named = Object.entries(map(clusters ?? { local: {} }, ["clusters"])).map(([name, value]): [string, Cluster] => {
    const path = ["clusters", name];
    if (!isCluster(name))
      complain(path, "is no name for a cluster: lower-case letters, digits and hyphens, at most 63");
    const said = map(value, path, ["rules", "keyVersion", "connect"]);
    return [
      name,
      {
        ...(said.connect != null && { connect: connect(said.connect, [...path, "connect"]) }),
        keyVersions: keyVersions(said.keyVersion, [...path, "keyVersion"], complain),
        rules: settle(setups(said.rules, [...path, "rules"], general)),
        groups: together,
      },
    ];
  });
  if (named.length === 0) complain(["clusters"], "must name at least one cluster, or be left out");
  // What is wrong with a rule by itself comes first.
  if (found.length === 0)
    for (const one of together) {
      for (const { name } of one.members)
        if (!named.some(([, { rules }]) => rules.has(name)))
          complain(["groups", one.name], `has ${name}, which is not named under rules`);
      for (const [, cluster] of named)
        for (const sentence of disagreements(one, cluster)) once(["groups", one.name], sentence);
    }
  return { clusters: new Map(named), groups: together };
};

/** Why a rule can't be in a group, or in another one. */
const unfitFor = ({ phases, rule }: Listed, other: string | undefined): string | undefined => {
  if (other !== undefined) return `is in ${other} already`;
  if (!phases.includes("mutate")) return "only validates; groups are for rules that mutate";
  if (rule.variants) return "has several entries, and a group has one";
  if (rule.survey) return "has an entry that follows what is in the cluster, and a group's is set when it is built";
  return rule.authorizedBy && "is decided by the API server's own authorizer, which a group can't ask";
};

const keyVersions = (value: unknown, path: Path, complain: (path: Path, sentence: string) => void): number[] => {
  const given: unknown[] = Array.isArray(value) ? value : [value ?? 1];
  const versions = given.filter((one): one is number => Number.isSafeInteger(one) && Number(one) >= 1);
  const [first, second = Number.POSITIVE_INFINITY] = versions;
  if (first === undefined || second <= first || given.length > 2 || versions.length < given.length)
    complain(path, "must be a whole number from 1 on, or two, the new one last, while it is raised");
  return versions;
};

/** What is served: each rule that is named for some cluster, whatever the mode, and each group in its members' place. */
export const servedRules = ({ clusters, groups }: Config, catalogue: Listed[]): Listed[] =>
  catalogue.flatMap((listed) => {
    const group = groups.find(({ members }) => members.includes(listed));
    const isNamed = [...clusters.values()].some(({ rules }) => rules.has(listed.name));
    const isAlone = group === undefined || listed.phases.includes("validate");
    return [...(group?.members[0] === listed ? [asRule(group)] : []), ...(isNamed && isAlone ? [listed] : [])];
  });

/** What goes into a rule's bundle. A cluster that doesn't use the rule is admitted as if it were off there. */
export const shareOf = (config: Config, { name, rule, members }: Listed): Share => {
  if (members) return groupShareOf({ name, members }, config.clusters);
  const standard = rule.settings ?? {};
  const usual = variantsAmong(rule, standard);
  const clusters = [...config.clusters].map(([cluster, { keyVersions, rules }]) => {
    const { mode, settings } = rules.get(name) ?? { mode: "off" as const, settings: standard };
    const variants = variantsAmong(rule, settings);
    return [cluster, { keyVersions, mode, settings, ...(!isDeepStrictEqual(variants, usual) && variants) }] as const;
  });
  return { rule: name, ...usual, clusters: Object.fromEntries(clusters) };
};

const variantsAmong = (rule: Rule, settings: object): { variants?: Variants } => {
  const variants = variantsOf(rule, settings)?.map(({ name, settings = {} }) => [name, settings]);
  return variants ? { variants: Object.fromEntries(variants) } : {};
};

/** The cluster that was named, or the only one. */
export const chooseCluster = (config: Config, name: string | undefined): [string, Cluster] => {
  const names = [...config.clusters.keys()].join(", ");
  const chosen = name ?? (config.clusters.size === 1 ? names : undefined);
  if (chosen === undefined) throw new Complaint(`--cluster must say which one: ${names}`);
  const cluster = config.clusters.get(chosen);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${chosen}"; it has ${names}`);
  return [chosen, cluster];
};

const definedOnly = <T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
