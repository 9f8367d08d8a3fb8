import type {
  AccessAnswer,
  AccessQuestion,
  Capabilities,
  HttpsRequest,
  HttpsResponse,
  ResourceType,
  ServedResource,
} from "../needs.ts";
import { type Present, plural, type RecordedAnswers, type RecordedRead } from "../recorded-answers.ts";
import type { KubernetesObject, Status } from "../review.ts";

/** Capabilities that note their answers. A rule that refuses may be evaluated twice; the second evaluation's notes count. */
export interface Noting {
  world: Capabilities;
  noted(): RecordedAnswers;
}

/** Notes the questions of one review and their answers. A question that fails is not noted. */
export const noting = (world: Capabilities): Noting => {
  let notes = book();
  const noted = (inner: Capabilities): Capabilities => ({
    get: async (kind, name, namespace, freshness) => {
      const object = await inner.get(kind, name, namespace, freshness);
      notes.reading(kind, { namespace, name });
      if (object) notes.object(kind, object);
      return object;
    },
    list: async (kind, namespace, freshness) => {
      const objects = await inner.list(kind, namespace, freshness);
      const { most = Number.POSITIVE_INFINITY, labels } = freshness ?? {};
      // Fewer objects than the limit are all that there are.
      notes.reading(kind, { namespace, most: objects.length < most ? undefined : most, labels });
      for (const object of objects) notes.object(kind, object);
      return objects;
    },
    create: async (kind, object) => {
      const creation = await inner.create(kind, object);
      notes.creation(kind, object, creation);
      return creation;
    },
    may: async (access) => {
      const permission = await inner.may(access);
      notes.permission(access, permission);
      return permission;
    },
    discover: async (groupVersion) => {
      const served = await inner.discover(groupVersion);
      notes.discovery.set(groupVersion, served);
      return served;
    },
    https: async (request) => notes.answer("https", questionOf(request), await inner.https(request)),
    http: async (request) => notes.answer("http", questionOf(request), await inner.http(request)),
    aws: async (action, request) => notes.answer("aws", { action, ...request }, await inner.aws(action, request)),
    cue: (source, evaluate) => inner.cue(source, evaluate),
    ledger: (rule) => {
      const ledger = inner.ledger(rule);
      return {
        change: async (key, change, terms) => {
          // After a concurrent change, the ledger calls it again; the last call's value is the one it was made from.
          let before: unknown;
          const made = await ledger.change(
            key,
            (kept: Parameters<typeof change>[0]) => {
              before = kept;
              return change(kept);
            },
            terms,
          );
          if (!notes.ledger.has(key)) notes.ledger.set(key, before);
          return made;
        },
      };
    },
    count: (counts) => inner.count(counts),
    ...(inner.anew && {
      anew: () => {
        const fresh = inner.anew?.();
        if (fresh === undefined) return undefined;
        notes = book();
        return noted(fresh);
      },
    }),
  });
  return { world: noted(world), noted: () => notes.written() };
};

type Answered = { answer: HttpsResponse };

const book = () => {
  const objects = new Map<string, Present>();
  const reads = new Map<string, RecordedRead>();
  const created = new Set<string>();
  const plurals = new Map<string, string>();
  const refused = new Map<string, { resource: string; name: string; status: Status }>();
  const may = new Map<string, [AccessQuestion, AccessAnswer]>();
  const discovery = new Map<string, ServedResource[] | undefined>();
  const answers = { https: new Map(), http: new Map(), aws: new Map<string, object & Answered>() };
  const ledger = new Map<string, unknown>();

  const placeOf = ({ group, resource }: ResourceType, { metadata = {} }: KubernetesObject) =>
    JSON.stringify([group, resource, metadata.namespace, metadata.name]);
  const note = (kind: ResourceType, object: KubernetesObject) => {
    const { kind: name = "" } = object;
    if (plural(name) !== kind.resource) plurals.set(`${kind.group}/${name}`, kind.resource);
    // An object that a cluster returns always has a name.
    objects.set(placeOf(kind, object), object as Present);
  };

  return {
    discovery,
    ledger,
    reading: (
      { group, resource }: ResourceType,
      what: { [Key in keyof RecordedRead]?: RecordedRead[Key] | undefined },
    ) => {
      const question = JSON.stringify({ group, resource, ...what });
      reads.set(question, JSON.parse(question));
    },
    object: (kind: ResourceType, object: KubernetesObject) => {
      // An object that this review created was not there before it.
      if (!created.has(placeOf(kind, object))) note(kind, object);
    },
    creation: (kind: ResourceType, object: KubernetesObject, creation: Awaited<ReturnType<Capabilities["create"]>>) => {
      const { apiVersion, kind: of, metadata: { name = "", namespace } = {} } = object;
      const place = placeOf(kind, object);
      if (creation === "created") created.add(place);
      else if (creation !== "exists") refused.set(place, { resource: kind.resource, name, status: creation.refused });
      else if (!objects.has(place) && !created.has(place)) {
        const metadata = { name, ...(namespace !== undefined && { namespace }) };
        note(kind, { ...(apiVersion && { apiVersion }), ...(of && { kind: of }), metadata });
      }
    },
    permission: (access: AccessQuestion, permission: AccessAnswer) =>
      void may.set(JSON.stringify(access), [access, permission]),
    answer: (way: keyof typeof answers, question: object, answer: HttpsResponse) => {
      answers[way].set(JSON.stringify(question), { ...question, answer });
      return answer;
    },
    written: (): RecordedAnswers => {
      const some = <T>(name: string, values: Iterable<T>) => {
        const all = [...values];
        return all.length > 0 && { [name]: all };
      };
      const told = <T>(entries: Map<string, T | undefined>) =>
        Object.fromEntries(
          [...entries].flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const])),
        );
      return {
        ...some("objects", objects.values()),
        // An empty list is recorded, too: without it, a replay would take `objects` for all there are.
        reads: [...reads.values()],
        ...some("refused", refused.values()),
        // Records with more members come first: one with fewer also matches more specific questions.
        ...some(
          "may",
          [...may.values()].sort(byExtent).map(([access, permission]) => ({ ...access, ...permission })),
        ),
        ...(discovery.size > 0 && { discovery: told(discovery) }),
        ...some("https", answers.https.values()),
        ...some("http", answers.http.values()),
        ...some("aws", answers.aws.values()),
        ...([...ledger.values()].some((value) => value !== undefined) && { ledger: told(ledger) }),
        ...(plurals.size > 0 && { plurals: Object.fromEntries(plurals) }),
      };
    },
  };
};

const byExtent = ([one]: [AccessQuestion, AccessAnswer], [other]: [AccessQuestion, AccessAnswer]) =>
  extent(other) - extent(one);
const extent = (access: AccessQuestion) => Object.values(access).filter((value) => value !== undefined).length;

/** Returns the members that distinguish requests; the others only say how a request is sent. */
export const questionOf = ({ url, method, headers, body }: HttpsRequest) => {
  return {
    url,
    ...(method !== undefined && { method }),
    ...(headers && { headers }),
    // A binary body can't be redacted.
    ...(typeof body === "string" && { body }),
  };
};
