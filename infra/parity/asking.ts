import { isMap } from "#lib/json.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { KubernetesObject, Request, UserInfo } from "#lib/review.ts";
import { type Phase, rule } from "#lib/rule.ts";
import type { Listed } from "../catalogue/registry.ts";
import type { Answer, Client } from "./control-plane/client.ts";
import { clear, type Turn } from "./player.ts";
import { listed, type Manifests } from "./postern.ts";
import { type CaseRequest, type Fields, requestOf } from "./requests.ts";

// Whom a request calls, and by which word it is found again, is said with its user, where conditions and rules see it.
const [setupKey, wordKey] = ["postern-setup", "postern-word"];
const said = (key: string) => `request.userInfo.?extra[?"${key}"].orValue([])`;

/** Webhooks that are called for nobody but those who ask for them by name. */
export const calledAs = (name: string, manifests: Manifests) => onlyWhere(`"${name}" in ${said(setupKey)}`, manifests);

/** A user who asks for them. */
export const calling = (name: string, user: UserInfo): UserInfo => {
  return { ...user, extra: { ...user.extra, [setupKey]: [name] } };
};

const onlyWhere = (expression: string, manifests: Manifests) => {
  const condition = { name: "is-asked", expression };
  return manifests.map(({ webhooks, ...manifest }) => ({
    ...manifest,
    webhooks: webhooks.map((one) => ({ ...one, matchConditions: [condition, ...(one.matchConditions ?? [])] })),
  }));
};

/** By phase, the review that the API server sent; of several the last. */
type Seen = Partial<Record<Phase, Request>>;

/** A rule that admits everything, and remembers the reviews of what is asked. */
export const openObserver = () => {
  const seen = new Map<string, Seen>();
  const note = (phase: Phase, request: Request) => {
    const [word = ""] = request.userInfo.extra?.[wordKey] ?? [];
    seen.set(word, { ...seen.get(word), [phase]: request });
  };
  let count = 0;
  return {
    listed: listed(
      "observer",
      rule({
        summary: "Watches.",
        match: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }],
        mutate: (_, { request }) => note("mutate", request),
        validate: (_, { request }) => note("validate", request),
      }),
    ),
    calledAlways: (manifests: Manifests) => onlyWhere(`size(${said(wordKey)}) > 0`, manifests),
    word: () => `${count++}`,
    /** What came by under a word, once. */
    recall: (word: string): Seen => {
      const found = seen.get(word) ?? {};
      seen.delete(word);
      return found;
    },
  };
};

/** An API server, and who watches there. */
export interface Place {
  admin: Client;
  observer?: ReturnType<typeof openObserver>;
}

/** A case to ask about. */
export interface Question {
  listed: Listed;
  entry: Case;
  /** Where its object lives, unless it says so itself. */
  namespace: string;
  /** Of that namespace. */
  labels: Record<string, string>;
  /** What else is put in place once its object is there, and how it goes again. */
  around?(admin: Client, stored: Fields): Promise<() => Promise<unknown>>;
}

/** What the client heard, and the observer saw. */
export interface Heard extends Turn {
  seen: Seen;
}

/** How what is sent is made of a case's object, and of what is stored: as it is, or with all kept that it leaves out. */
export type Shape = (body: Fields, stored: Fields) => Fields;
export const shapes: Shape[] = [(body) => body, (body, stored) => onto(stored, body) as Fields];

export const accepts = ({ code }: Answer) => code >= 200 && code < 300;

/** Sends a case's request about an object, calling a setup's rules or none; takes away what is left. */
export const ask = async (
  place: Place,
  question: Question,
  object: KubernetesObject,
  shape: Shape,
  setup?: string,
): Promise<Heard> => {
  const { admin } = place;
  const request = await requestOf(question.listed, question.entry, question.namespace, admin);
  const { method, path, name, collection } = request;
  const obstacle = await prepare(admin, request, question.labels);
  if (obstacle) return { call: { method, path, user: "admin" }, name, answer: obstacle, seen: {} };

  const stored = method === "PUT" ? (await admin({ method: "GET", path })).body : {};
  const leave = await question.around?.(admin, stored);
  const heard = await send(place, request, shape(request.body(object), stored), setup);
  // What a subresource says of itself is only that all is well.
  if (heard.answer.code === 201 && heard.answer.body.kind === "Status" && request.place)
    heard.answer = { ...heard.answer, body: (await admin({ method: "GET", path: request.place })).body };
  await leave?.();
  const { name: made } = Object(heard.answer.body.metadata);
  const left = request.place ?? (heard.answer.code === 201 && made ? `${collection}/${made}` : undefined);
  if (left) await clear(left, () => admin);
  return heard;
};

type Sendable = Pick<CaseRequest, "method" | "path" | "user" | "name">;

export const send = async (
  { admin, observer }: Place,
  { method, path, user, name }: Sendable,
  body: Fields,
  setup?: string,
): Promise<Heard> => {
  const word = observer?.word();
  const extra = { ...user.extra, ...(word && { [wordKey]: [word] }), ...(setup && { [setupKey]: [setup] }) };
  const call = { method, path, impersonate: { ...user, extra }, ...(method !== "DELETE" && { body }) };
  const answer = await admin(call)
    // Some objects keep the API server from ever answering.
    .catch(({ message }: Error): Answer => ({ code: 0, body: { message }, warnings: [] }));
  // Some say who made them.
  const { extra: own } = Object(answer.body.spec);
  if (own) for (const key of [setupKey, wordKey]) Reflect.deleteProperty(own, key);
  if (own && Object.keys(own).length === 0) Reflect.deleteProperty(Object(answer.body.spec), "extra");
  return { call: { ...call, user: "admin" }, name, answer, seen: (word && observer?.recall(word)) || {} };
};

/** Puts in place what a case finds, calling no rule; answers what the API server says where it refuses that. */
export const prepare = async (
  admin: Client,
  { namespace, place, present, collection, ephemeralContainers }: CaseRequest,
  labels: Record<string, string>,
): Promise<Answer | undefined> => {
  const home = { metadata: { name: namespace, labels } };
  if (namespace) await admin({ method: "POST", path: "/api/v1/namespaces", body: home });
  const isThere = place !== undefined && accepts(await admin({ method: "GET", path: place }));
  if (isThere && !present) await clear(place, () => admin);
  if (isThere || !present) return undefined;

  const created = await admin({ method: "POST", path: collection, body: present });
  if (!accepts(created)) return created;
  const { status } = present;
  if (status !== undefined) {
    const contentType = "application/merge-patch+json";
    const stated = await admin({ method: "PATCH", path: `${place}/status`, body: { status }, contentType });
    if (!accepts(stated)) return stated;
  }
  if (ephemeralContainers === undefined) return undefined;
  const body = { spec: { ephemeralContainers } };
  const contentType = "application/strategic-merge-patch+json";
  const debugged = await admin({ method: "PATCH", path: `${place}/ephemeralcontainers`, body, contentType });
  return accepts(debugged) ? undefined : debugged;
};

/** What is given, over what is there; elements of lists are known by their names. */
const onto = (present: unknown, given: unknown): unknown => {
  if (given === undefined) return present;
  if (isNamed(present) && isNamed(given)) {
    const updated = present.map((one) => [one, given.find(({ name }) => name === one.name)] as const);
    const added = given.filter(({ name }) => !present.some((one) => one.name === name));
    return [...updated.map(([one, other]) => onto(one, other)), ...added];
  }
  if (!isMap(present) || !isMap(given)) return given;
  const changed = Object.entries(given).map(([key, value]) => [key, onto(present[key], value)]);
  return { ...present, ...Object.fromEntries(changed) };
};

const isNamed = (value: unknown): value is (Fields & { name: unknown })[] =>
  Array.isArray(value) && value.length > 0 && value.every((one) => isMap(one) && "name" in one);
