// Learns what API servers require of the fields of built-in kinds: in valid objects, it changes one field after the
// other, and keeps what explains all answers.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { parse } from "yaml";
import { isMap, isSame, type JsonMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults, prepareForStorage } from "../../infra/apiserver/defaults/defaults.ts";
import olderTypes from "../../infra/apiserver/defaults/older-types.json" with { type: "json" };
import newestTypes from "../../infra/apiserver/defaults/types.json" with { type: "json" };
import { buildKindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { selectMinor } from "../../infra/apiserver/minors.ts";
import { createFieldValidation, type FieldRule, type FieldRules } from "../../infra/apiserver/validation/fields.ts";
import { textFormats } from "../../infra/apiserver/validation/formats.ts";
import { listPlugins, requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath, type TestClusterClient } from "../control-plane/client.ts";
import { bootCluster } from "../control-plane/cluster.ts";
import { buildCertificateRequest, toPem } from "../parity/generators/certificate-requests.ts";
import { createObjectGenerators } from "../parity/generators/object-generators.ts";
import { type GeneratedKind, parityGeneratedKinds } from "../parity/generators/steps.ts";

type Types = Record<string, Record<string, string>>;
type Path = (string | number)[];

/** Values of members, by types: the API server may refuse any value. */
type Samples = Record<string, Record<string, unknown>>;

interface ValidObjects {
  pod: JsonMap;
  noTemplate: string[];
  samples: Samples;
  objects: JsonMap[];
}

/** Returns the objects of valid-objects.yaml: complete, and with names. */
export const readValidObjects = (): { objects: KubernetesObject[]; samples: Samples } => {
  const { pod, noTemplate, samples, objects }: ValidObjects = parse(
    readFileSync(join(import.meta.dirname, "valid-objects.yaml"), "utf8").replace(
      "REQUEST",
      Buffer.from(toPem(buildCertificateRequest())).toString("base64"),
    ),
    { merge: true },
  );
  const templateSpec = Object.fromEntries(Object.entries(pod).filter(([member]) => !noTemplate.includes(member)));
  const complete = (template: JsonMap): JsonMap => ({
    ...template,
    spec: Object.hasOwn(Object(template.spec), "containers")
      ? template.spec
      : { ...templateSpec, ...Object(template.spec) },
  });
  const edit = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(edit);
    if (!isMap(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, member]) => [
        key,
        key === "template" && isMap(member) ? complete(member) : edit(member),
      ]),
    );
  };
  const completed = objects.map((object, index) => {
    const own = Object(object.metadata);
    const metadata = {
      name: `valid-${index}`,
      labels: { a: "b" },
      annotations: { a: "b" },
      finalizers: ["example.com/a"],
      ...own,
    };
    const spec = object.kind === "Pod" ? (object.spec ?? pod) : object.spec;
    return structuredClone(edit({ ...object, metadata, ...(spec !== undefined && { spec }) })) as KubernetesObject;
  });
  return { objects: completed, samples };
};

export interface Field {
  object: KubernetesObject;
  path: Path;
  word: string;
  /** The type and member, and the path in the kind, under which rules are kept. */
  type: string;
  member: string;
  place: string;
}

/** Returns all fields that an object has, and those of its structs that it hasn't. */
export const listFields = (object: KubernetesObject, types: Types, kinds: Types): Field[] => {
  const found: Field[] = [];
  const visit = (value: unknown, word: string, field: Omit<Field, "object" | "word">) => {
    const plain = word.replace("?", "");
    const inner = plain.replace("*", "");
    if (field.path.length > 0) found.push({ ...field, object, word: plain });
    if (inner[0] === "[" && Array.isArray(value))
      for (const [index, item] of value.entries())
        visit(item, inner.slice(1), {
          ...field,
          path: [...field.path, index],
          member: `${field.member}[]`,
          place: `${field.place}[]`,
        });
    else if (inner[0] === "{" && isMap(value))
      for (const [key, item] of Object.entries(value))
        visit(item, inner.slice(1), {
          ...field,
          path: [...field.path, key],
          member: `${field.member}{}`,
          place: `${field.place}{}`,
        });
    else if (isMap(value))
      for (const [member, memberWord] of Object.entries(types[inner] ?? {}))
        visit(value[member], memberWord, {
          path: [...field.path, member],
          type: inner,
          member,
          place: field.place === "" ? member : `${field.place}.${member}`,
        });
  };
  const word = kinds[object.apiVersion ?? ""]?.[object.kind ?? ""];
  if (word) visit(object, word, { path: [], type: "", member: "", place: "" });
  return found.filter(
    ({ path }) => !["apiVersion", "kind", "status"].includes(String(path[0])) && !isSystemField(path),
  );
};

const isSystemField = ([first, second]: Path) =>
  first === "metadata" &&
  !["name", "generateName", "labels", "annotations", "finalizers", "ownerReferences"].includes(String(second)) &&
  second !== undefined;

/** Returns an object with another value at a path; undefined removes it. */
export const setAt = (object: KubernetesObject, path: Path, value: unknown): KubernetesObject => {
  const copy = structuredClone(object);
  let inner: unknown = copy;
  for (const step of path.slice(0, -1)) inner = (inner as JsonMap)[step];
  const last = path.at(-1) ?? "";
  if (value !== undefined) (inner as JsonMap)[last] = value;
  else if (Array.isArray(inner)) inner.splice(Number(last), 1);
  else delete (inner as JsonMap)[last];
  return copy;
};

export const getAt = (object: unknown, path: Path): unknown =>
  path.reduce<unknown>((value, step) => (value as JsonMap | undefined)?.[step], object);

const formatPath = (path: Path): string =>
  path.map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${step}`)).join("");

/** The causes of an answer: none if it is valid; undefined if validation wasn't reached. */
type Causes = { field: string; message: string }[] | undefined;

type Send = (object: KubernetesObject) => Promise<Causes>;

/** Texts by which formats are distinguished from each other. */
const texts = [
  ...[
    "a",
    "A",
    "a.b",
    "a/b",
    "example.com/a",
    "Example.com/a",
    "a/b/c",
    "-a",
    "a-",
    "a_b",
    "1",
    "1a",
    "a--b",
    "10.0.0.1",
  ],
  ...[
    "..",
    "..a",
    ".",
    " a",
    "a b",
    "a=b",
    "%",
    "é",
    "a".repeat(16),
    "a".repeat(64),
    "a".repeat(254),
    `${"a".repeat(64)}.b`,
    "*",
  ],
];
/** Texts that suffice where another field of the same type has a format. */
const sufficientTexts = ["a.b", "example.com/a", "-a", "A", "a".repeat(64)];
const wrongText = " No such value!";

/** What was learned so far of a member of a type: a field of another kind is tried with it first. */
type Known = Map<string, FieldRule[]>;

/** What the API server says of a field: `isAbove` if it names the list or map that the field is in. */
interface FieldAnswer {
  own: string[];
  isAbove: boolean;
}

/** A field with its rule. What the API server accepts contradicts the parts in `accepted`; nothing is known of others. */
interface LearnedField {
  field: Field;
  rule: FieldRule;
  accepted: Set<keyof FieldRule>;
}

/** Learns the rule of one field in one object. */
const learnField = async (field: Field, send: Send, known: Known): Promise<LearnedField> => {
  const { object, path, word, type, member } = field;
  const inner = word.replace("*", "");
  const above = formatPath(path.slice(0, -1));
  const at = member.endsWith("{}") ? `${above}[${path.at(-1)}]` : formatPath(path);
  const isElement = /[\]}]$/.test(member);
  const probe = async (value: unknown): Promise<FieldAnswer | undefined> => {
    const causes = await send(setAt(object, path, value));
    const select = (name: string) =>
      (causes ?? []).filter((cause) => cause.field === name).map(({ message }) => message);
    const [own, higher] = [select(at), isElement ? select(above) : []];
    if (causes === undefined || (causes.length > 0 && own.length + higher.length === 0)) return undefined;
    return own.length > 0 ? { own, isAbove: false } : { own: higher, isAbove: higher.length > 0 };
  };
  const before = known.get(`${type} ${member}`) ?? [];
  known.set(`${type} ${member}`, before);
  const rule: FieldRule = {};
  const accepted = new Set<keyof FieldRule>();
  const isAccepted = async (value: unknown) => (await probe(value))?.own.length === 0;
  if (!isElement) {
    const answer = await probe(undefined);
    const [message] = answer?.own ?? [];
    if (message !== undefined && isUnconditional(message)) rule.required = message;
    if (answer?.own.length === 0) accepted.add("required");
  }
  if (inner === "text") {
    Object.assign(rule, await learnText(probe, before));
    if (await isAccepted(wrongText)) accepted.add("enum").add("format");
  }
  if (inner === "number") {
    Object.assign(rule, await learnBounds(Number(getAt(object, path) ?? 1), probe, before));
    if (!rule.min && (await isAccepted(-1))) accepted.add("min");
    if (!rule.max && (await isAccepted(2147483647))) accepted.add("max");
  }
  if (/^\{(text|quantity|bytes)$/.test(inner)) {
    Object.assign(rule, await learnKeys(field, at, send, before));
    if ((await send(setAt(object, path, { ...Object(getAt(object, path)), [wrongText]: "1" })))?.length === 0)
      accepted.add("keys");
  }
  before.push(rule);
  return { field, rule, accepted };
};

/** Learns whether any value of a field is refused. */
const learnForbidden = async (field: Field, samples: Samples, send: Send): Promise<LearnedField[]> => {
  const { object, path, type, member } = field;
  const sample = samples[type]?.[member];
  const causes = sample === undefined ? undefined : await send(setAt(object, path, sample));
  const forbidden = causes?.find((cause) => cause.field === formatPath(path))?.message;
  if (forbidden !== undefined) return [{ field, rule: { forbidden }, accepted: new Set() }];
  return causes?.length === 0 ? [{ field, rule: {}, accepted: new Set(["forbidden"]) }] : [];
};

/** Reports whether a refusal mentions no condition, such as the value of another field. */
const isUnconditional = (message: string): boolean =>
  // What is said of null differs from what is said of an empty list.
  !message.startsWith("Invalid value: null") &&
  !/`|\b(when|if|unless|either|exactly one|for|specified)\b/.test(message);

const learnText = async (
  probe: (value: unknown) => Promise<FieldAnswer | undefined>,
  before: readonly FieldRule[],
): Promise<FieldRule> => {
  const wrong = await probe(wrongText);
  const [first = ""] = wrong?.own ?? [];
  const isNamedAbove = wrong?.isAbove ? { isNamedAbove: true } : {};
  const [, supported] = /^Unsupported value: .*: supported values: (.*)$/.exec(first) ?? [];
  if (supported !== undefined)
    return { enum: [...supported.matchAll(/"([^"]*)"/g)].map(([, one = ""]) => one), ...isNamedAbove };
  if (!first.startsWith("Invalid value: ")) return {};
  const format = await learnFormat(
    async (text) => (await probe(text))?.own,
    before.flatMap(({ format }) => format || []),
  );
  return format === undefined ? {} : { format, ...isNamedAbove };
};

/** Learns the format of texts by what is said of some of them; `similar` formats need fewer texts. */
const learnFormat = async (
  ask: (text: string) => Promise<string[] | undefined>,
  similar: readonly string[],
): Promise<string | undefined> => {
  const answers = new Map([[wrongText, await ask(wrongText)]]);
  const likely = findFormat(answers, similar);
  for (const text of likely === undefined ? texts : sufficientTexts) answers.set(text, await ask(text));
  return findFormat(answers, likely === undefined ? undefined : [likely]);
};

const learnKeys = async (
  { object, path, word }: Field,
  at: string,
  send: Send,
  before: readonly FieldRule[],
): Promise<FieldRule> => {
  const map: JsonMap = Object(getAt(object, path));
  const [value = word.includes("quantity") ? "1" : "YQ=="] = Object.values(map);
  let isAbove = false;
  const ask = async (text: string) => {
    const causes = await send(setAt(object, path, { ...map, [text]: value }));
    const found = causes?.filter(({ field }) => field === `${at}[${text}]` || field === at) ?? [];
    isAbove ||= found.some(({ field }) => field === at);
    const isUnknown = causes === undefined || (causes.length > 0 && found.length === 0);
    return isUnknown ? undefined : found.map(({ message }) => message);
  };
  if (((await ask(wrongText)) ?? []).length === 0) return {};
  const keys = await learnFormat(
    ask,
    before.flatMap(({ keys }) => keys || []),
  );
  return keys === undefined ? {} : { keys, ...(isAbove ? { isNamedAbove: true } : {}) };
};

/** Returns the format that explains what the API server says of texts. */
const findFormat = (
  answers: ReadonlyMap<string, string[] | undefined>,
  names: readonly string[] = Object.keys(textFormats),
): string | undefined => {
  const entries = [...answers].flatMap(([text, messages]) => (messages ? [[text, messages] as const] : []));
  if (!entries.some(([, messages]) => messages.length > 0)) return undefined;
  return names.find((name) =>
    entries.every(([text, messages]) => {
      const own = textFormats[name]?.(text).map((detail) => `Invalid value: ${JSON.stringify(text)}: ${detail}`);
      return isSame(own, messages);
    }),
  );
};

/** Learns the least and the greatest number that are valid, and what is said of numbers beyond. */
const learnBounds = async (
  valid: number,
  probe: (value: number) => Promise<FieldAnswer | undefined>,
  before: readonly FieldRule[],
): Promise<FieldRule> => {
  const readDetail = async (value: number) => {
    const [message] = (await probe(value))?.own ?? [];
    const [, given, detail = ""] = /^Invalid value: (-?\d+): (.*)$/.exec(message ?? "") ?? [];
    return Number(given) === value && isUnconditional(detail) ? detail : undefined;
  };
  const rule: FieldRule = {};
  for (const [part, limit] of [
    ["min", -1],
    ["max", 2147483647],
  ] as const) {
    const detail = await readDetail(limit);
    if (detail === undefined || (await probe(valid))?.own.length !== 0) continue;
    let [good, bad]: [number, number] = [valid, limit];
    const similar = before.map((rule) => rule[part] || undefined).find((bound) => bound?.[1] === detail);
    if (similar && (await probe(similar[0]))?.own.length === 0) {
      const beyond = similar[0] + Math.sign(limit - valid);
      if ((await readDetail(beyond)) === detail) [good, bad] = [similar[0], beyond];
    }
    while (Math.abs(good - bad) > 1) {
      const middle = Math.trunc((good + bad) / 2);
      if ((await readDetail(middle)) === detail) bad = middle;
      else good = middle;
    }
    rule[part] = [good, detail];
  }
  return rule;
};

/** Runs an action for all elements, several at a time. */
export const forAll = async <T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> => {
  const rest = [...all];
  const work = async () => {
    for (let next = rest.shift(); next !== undefined; next = rest.shift()) await act(next);
  };
  await Promise.all(Array.from({ length: 12 }, work));
};

/** What an API server answered. */
interface Answered {
  object: KubernetesObject;
  causes: NonNullable<Causes>;
}

/** Boots an API server of a minor without plugins, and keeps what it answers. */
export const bootServer = async (minor: string) => {
  const binaries = await requireBinaries(minor);
  const { defaultOn: disable } = await listPlugins(binaries);
  const cluster = await bootCluster(binaries, { disable, flags: ["--allow-privileged=true"] });
  const answered: Answered[] = [];
  const send: Send = async (object) => {
    const causes = await createObject(cluster.admin, object);
    if (causes) answered.push({ object, causes });
    return causes;
  };
  return { admin: cluster.admin, send, answered, stop: cluster.stop };
};

/** Returns the rules that a minor of Kubernetes has. */
export const learnFieldRules = async (minor: string): Promise<FieldRules> => {
  const { types, kinds }: { types: Types; kinds: Types } = selectMinor(newestTypes, olderTypes, minor);
  const { send, answered, stop } = await bootServer(minor);
  try {
    const learned: LearnedField[] = [];
    const known: Known = new Map();
    const { objects, samples } = readValidObjects();
    for (const object of objects) {
      const causes = await send(object);
      if (causes?.length !== 0)
        throw new Error(`${object.metadata?.name}, a ${object.kind}, isn't valid: ${JSON.stringify(causes)}`);
      await forAll(listFields(object, types, kinds), async (field) => {
        learned.push(await learnField(field, send, known), ...(await learnForbidden(field, samples, send)));
      });
    }
    const rules = collectRules(learned);
    const { buildObject } = createObjectGenerators(true);
    const generated = fc
      .constantFrom(...(Object.keys(parityGeneratedKinds) as GeneratedKind[]))
      .chain(buildObject)
      .map(
        (object): KubernetesObject =>
          JSON.parse(JSON.stringify({ ...object, metadata: { ...Object(object.metadata), name: "a" } })),
      );
    await forAll(fc.sample(generated, { seed: 1, numRuns: 3000 }), async (object) => void (await send(object)));
    dropWrongRules(rules, minor, answered);
    return rules;
  } finally {
    await stop();
  }
};

/**
 * Sends objects that rules refuse to an API server of a minor, and returns what differs from its refusals. `isChosen`
 * chooses fields of each object.
 */
export const findWrongRules = async (rules: FieldRules, minor: string, isChosen = (_index: number) => true) => {
  const { types, kinds }: { types: Types; kinds: Types } = selectMinor(newestTypes, olderTypes, minor);
  const { send, answered, stop } = await bootServer(minor);
  try {
    const validate = createFieldValidation(rules, minor);
    const { objects, samples } = readValidObjects();
    for (const object of objects) {
      if ((await send(object))?.length !== 0) continue;
      const fields = listFields(object, types, kinds).filter((_, index) => isChosen(index));
      await forAll(fields, async ({ path, type, member, word }) => {
        const map = Object(getAt(object, path));
        const keyed = word.startsWith("{") ? [{ ...map, [wrongText]: Object.values(map)[0] ?? "1" }] : [];
        for (const value of [undefined, wrongText, -1, 2147483647, samples[type]?.[member], ...keyed]) {
          const changed = setAt(object, path, value);
          const filled = fillDefaults(addNamespace(changed), minor);
          if (filled.misfits.length === 0 && validate(prepareForStorage(filled.object, minor))?.length)
            await send(changed);
        }
      });
    }
    return { refusals: answered.length, wrong: listWrongFaults(rules, minor, answered), answered };
  } finally {
    await stop();
  }
};

export const addNamespace = (object: KubernetesObject): KubernetesObject =>
  kindIndex.of(object.apiVersion ?? "", object.kind ?? "")?.namespaced
    ? { ...object, metadata: { namespace: "default", ...object.metadata } }
    : object;
const kindIndex = buildKindIndex([]);

const createObject = async (admin: TestClusterClient, object: KubernetesObject): Promise<Causes> => {
  const path = `${getCollectionPath(addNamespace(object))}?dryRun=All`;
  const request = { method: "POST", path, body: object } as const;
  // An API server ends the connection of a request that it fails on.
  const answer = await admin(request).catch(() => undefined);
  if (answer === undefined) return undefined;
  const { code, body } = answer;
  if (code === 201) return [];
  const { causes } = Object(body.details);
  return code === 422 && Array.isArray(causes) ? causes : undefined;
};

const parts = ["required", "forbidden", "enum", "min", "max", "format", "keys"] as const;

/**
 * Collects rules by types. A kind in which a field has another rule, or none, has an entry of its own; if the places of one
 * kind differ, all places have entries.
 */
const collectRules = (learned: readonly LearnedField[]): FieldRules => {
  const rules: FieldRules = { types: {}, kinds: {} };
  for (const all of Map.groupBy(learned, ({ field: { type, member } }) => `${type} ${member}`).values())
    for (const part of parts) {
      const decided = all.filter(({ rule, accepted }) => rule[part] !== undefined || accepted.has(part));
      const byPlace = Map.groupBy(
        decided,
        ({ field: { object, place } }) => `${object.apiVersion} ${object.kind}\n${place}`,
      );
      const found = Array.from(byPlace, ([key, some]) => {
        const [kind = "", place = ""] = key.split("\n");
        return { kind, place, rule: pickCommon(some, part) };
      });
      const counts = [...Map.groupBy(found, ({ rule }) => rule)].filter(([rule]) => rule !== none);
      const [usual] = counts.sort(([, left], [, right]) => right.length - left.length);
      if (usual === undefined || all[0] === undefined) continue;
      const isMixed = [...Map.groupBy(found, ({ kind }) => kind).values()].some(([first, ...others]) =>
        others.some(({ rule }) => rule !== first?.rule),
      );
      const isShared = usual[1].length * 2 > found.length && !isMixed;
      const { type, member } = all[0].field;
      if (isShared) Object.assign(openRule(rules.types, type, member), JSON.parse(usual[0]));
      for (const { kind, place, rule } of found)
        if (rule !== (isShared ? usual[0] : none))
          Object.assign(openRule(rules.kinds, kind, place), rule === none ? { [part]: false } : JSON.parse(rule));
    }
  return rules;
};

/** Returns a rule, which is added if it isn't there. */
const openRule = (all: FieldRules["types"], name: string, member: string): FieldRule => {
  const members = all[name] ?? {};
  all[name] = members;
  const rule = members[member] ?? {};
  members[member] = rule;
  return rule;
};

const none = "{}";

/** Returns the part that all fields in one place have: for a refusal of any value, also with its condition. */
const pickCommon = (all: readonly LearnedField[], part: keyof FieldRule): string => {
  const [first = {}] = all.flatMap(({ rule }) => (rule[part] === undefined ? [] : [rule]));
  const others = all.filter(({ rule }) => !isSame(rule[part], first[part]));
  const unless =
    others.length > 0 && part === "forbidden" ? findCondition(String(first.forbidden), all, others) : undefined;
  if (others.length > 0 && unless === undefined) return none;
  const isNamedAbove = first.isNamedAbove && /enum|format|keys/.test(part) && { isNamedAbove: true };
  return JSON.stringify({ [part]: first[part], ...(unless && { unless }), ...isNamedAbove });
};

/** Returns the member and its value that a refusal names, and that only the accepted structs have. */
const findCondition = (message: string, all: readonly LearnedField[], accepted: readonly LearnedField[]) => {
  const getStruct = ({ field: { object, path } }: LearnedField): JsonMap => Object(getAt(object, path.slice(0, -1)));
  const [first, ...others] = accepted.map(getStruct);
  return Object.entries(first ?? {}).find(
    ([member, value]) =>
      message.includes(`${member}=${value}`) &&
      others.every((struct) => struct[member] === value) &&
      all.every((one) => accepted.includes(one) || getStruct(one)[member] !== value),
  );
};

/** Returns the faults that rules find and the API server doesn't, with the objects. */
const listWrongFaults = (rules: FieldRules, minor: string, answered: readonly Answered[]) => {
  const validate = createFieldValidation(rules, minor);
  return answered.flatMap(({ object, causes }) => {
    const filled = fillDefaults(addNamespace(object), minor);
    if (filled.misfits.length > 0) return [];
    const faults = validate(prepareForStorage(filled.object, minor)) ?? [];
    return faults.flatMap((fault) =>
      causes.some(({ field, message }) => field === fault.field && message === fault.message)
        ? []
        : [{ ...fault, object, isAccepted: causes.length === 0 }],
    );
  });
};

/**
 * Removes the parts of rules that refuse an accepted object, and for a kind those that refuse with other words than the
 * API server.
 */
export const dropWrongRules = (rules: FieldRules, minor: string, answered: readonly Answered[]): void => {
  for (const { place, part, object, isAccepted } of listWrongFaults(rules, minor, answered)) {
    const own = openRule(rules.kinds, `${object.apiVersion} ${object.kind}`, place.path);
    const shared = rules.types[place.type]?.[place.member];
    if (isAccepted && shared) delete shared[part];
    if (shared?.[part] === undefined) delete own[part];
    else Object.assign(own, { [part]: false });
  }
};

/** Returns rules as the text of fields.json, with a line for each type and kind. */
export const printRules = (rules: FieldRules): string => {
  const print = (all: Record<string, Record<string, FieldRule>>) =>
    Object.entries(all)
      .map(
        ([name, members]) =>
          [
            name,
            sortEntries(members).filter(([, rule]) => Object.keys(rule).some((key) => key !== "isNamedAbove")),
          ] as const,
      )
      .filter(([, members]) => members.length > 0)
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([name, members]) => `    ${JSON.stringify(name)}: ${JSON.stringify(Object.fromEntries(members))}`)
      .join(",\n");
  return `{\n  "types": {\n${print(rules.types)}\n  },\n  "kinds": {\n${print(rules.kinds)}\n  }\n}\n`;
};

const sortEntries = <T>(all: Record<string, T>) =>
  Object.entries(all).sort(([left], [right]) => (left < right ? -1 : 1));
