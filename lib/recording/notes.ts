import { type CapabilityVerb, interceptCalls } from "../core/capabilities.ts";
import type {
  AccessAnswer,
  AccessQuestion,
  Capabilities,
  HttpsRequest,
  HttpsResponse,
  ResourceType,
  ServedResource,
} from "../needs.ts";
import type { KubernetesObject, Status } from "../review.ts";
import {
  type NamedKubernetesObject,
  type RecordedCapabilityAnswers,
  type RecordedRead,
  toPlural,
} from "./recorded-answers.ts";

/**
 * Capabilities that note their answers. A rule that refuses may be evaluated twice. Then, the notes of the second
 * evaluation count.
 */
export interface NotingCapabilities {
  capabilities: Capabilities;
  noted(): RecordedCapabilityAnswers;
}

/** Wraps capabilities so that the questions and answers of one review are noted. Failed questions are left out. */
export const noteAnswers = (capabilities: Capabilities): NotingCapabilities => {
  let notes = openNotes();
  const noteCalls = (inner: Capabilities): Capabilities => ({
    ...interceptCalls(inner, async (verb, args, ask) => {
      const answer = await ask();
      // A cast is needed, because TypeScript can't relate a capability's name to its arguments and answer.
      (notes.take[verb] as (args: readonly unknown[], answer: unknown) => void)(args, answer);
      return answer;
    }),
    ledger: (rule, reach) => {
      const ledger = inner.ledger(rule, reach);
      // With a ledger that all clusters share, a rule also gets the cluster's name (see `sharedLedger`).
      if (reach === "clusters") notes.noteCluster(inner.cluster);
      return {
        change: async (keys, change, seconds) => {
          // The ledger may call `change` again after a concurrent change. The values of the last call count.
          let before: readonly unknown[] = [];
          const changed = await ledger.change(
            keys,
            (kept: Parameters<typeof change>[0]) => {
              before = kept;
              return change(kept);
            },
            seconds,
          );
          for (const [index, key] of keys.entries()) if (!notes.ledger.has(key)) notes.ledger.set(key, before[index]);
          return changed;
        },
      };
    },
    // `anew` returns the capabilities for a second evaluation without cached answers. Only the notes of that count.
    ...(inner.anew && {
      anew: () => {
        const fresh = inner.anew?.();
        if (fresh === undefined) return undefined;
        notes = openNotes();
        return noteCalls(fresh);
      },
    }),
  });
  return { capabilities: noteCalls(capabilities), noted: () => notes.list() };
};

type NoteTakers = {
  [V in CapabilityVerb]: (args: Parameters<Capabilities[V]>, answer: Awaited<ReturnType<Capabilities[V]>>) => void;
};
type AnsweredRequest = object & { answer: HttpsResponse };

/** Returns empty notes. `take` has a function for each capability that notes an answer; `list` returns the notes. */
const openNotes = () => {
  const objects = new Map<string, NamedKubernetesObject>();
  const reads = new Map<string, RecordedRead>();
  const written = new Set<string>();
  const plurals = new Map<string, string>();
  const refused = new Map<string, { resource: string; name: string; status: Status }>();
  const may = new Map<string, AccessQuestion & AccessAnswer>();
  const discovery = new Map<string, ServedResource[] | undefined>();
  const requests = { https: new Map(), http: new Map(), aws: new Map<string, AnsweredRequest>() };
  const ledger = new Map<string, unknown>();
  let cluster = "";

  const placeOf = ({ group, resource }: ResourceType, { metadata = {} }: KubernetesObject) =>
    JSON.stringify([group, resource, metadata.namespace, metadata.name]);
  const keep = (kind: ResourceType, object: KubernetesObject) => {
    const { kind: name = "" } = object;
    if (toPlural(name) !== kind.resource) plurals.set(`${kind.group}/${name}`, kind.resource);
    // The cast is safe: an object that a cluster returns always has a name.
    objects.set(placeOf(kind, object), object as NamedKubernetesObject);
  };
  const keepRead = (
    { group, resource }: ResourceType,
    what: { [Key in keyof RecordedRead]?: RecordedRead[Key] | undefined },
    found: KubernetesObject[],
  ) => {
    const question = JSON.stringify({ group, resource, ...what });
    reads.set(question, JSON.parse(question));
    const kind = { group, resource };
    // Objects that the rule has created or updated in this review are left out: a replay starts from the state before.
    for (const object of found) if (!written.has(placeOf(kind, object))) keep(kind, object);
  };
  const keepRequest = (verb: keyof typeof requests, question: object, answer: HttpsResponse) =>
    void requests[verb].set(JSON.stringify(question), { ...question, answer });

  const take: NoteTakers = {
    get: ([kind, name, namespace], object) => keepRead(kind, { namespace, name }, object ? [object] : []),
    list: ([kind, namespace, { most = Number.POSITIVE_INFINITY, labels } = {}], found) =>
      // A list shorter than its limit is complete, so it is recorded without the limit.
      keepRead(kind, { namespace, most: found.length < most ? undefined : most, labels }, found),
    create: ([kind, object], creation) => {
      const { apiVersion, kind: kindName, metadata: { name = "", namespace } = {} } = object;
      const place = placeOf(kind, object);
      if (creation === "created") written.add(place);
      else if (creation !== "exists") refused.set(place, { resource: kind.resource, name, status: creation.refused });
      else if (!objects.has(place) && !written.has(place)) {
        const metadata = { name, ...(namespace !== undefined && { namespace }) };
        keep(kind, { ...(apiVersion && { apiVersion }), ...(kindName && { kind: kindName }), metadata });
      }
    },
    updateStatus: ([kind, object], result) => {
      const place = placeOf(kind, object);
      const { name = "" } = object.metadata ?? {};
      if (result === "updated") written.add(place);
      else if (result !== "changed") refused.set(place, { resource: kind.resource, name, status: result.refused });
    },
    may: ([access], permission) => void may.set(JSON.stringify(access), { ...access, ...permission }),
    discover: ([groupVersion], resources) => void discovery.set(groupVersion, resources),
    https: ([request], answer) => keepRequest("https", toRecordedRequest(request), answer),
    http: ([request], answer) => keepRequest("http", toRecordedRequest(request), answer),
    aws: ([action, request], answer) => keepRequest("aws", { action, ...request }, answer),
    cue: () => {},
  };

  const list = (): RecordedCapabilityAnswers => {
    const toOptionalField = <T>(name: string, values: Iterable<T>) => {
      const elements = [...values];
      return elements.length > 0 && { [name]: elements };
    };
    const toObject = <T>(values: Map<string, T | undefined>) =>
      Object.fromEntries([...values].flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const])));
    return {
      ...toOptionalField("objects", objects.values()),
      // `reads` is recorded even if it is empty: without it, `objects` would be the whole cluster in a replay.
      reads: [...reads.values()],
      ...toOptionalField("refused", refused.values()),
      // Access questions with more members come first. In a replay, the first one that matches counts.
      ...toOptionalField(
        "may",
        [...may.values()].sort((left, right) => countMembers(right) - countMembers(left)),
      ),
      ...(discovery.size > 0 && { discovery: toObject(discovery) }),
      ...toOptionalField("https", requests.https.values()),
      ...toOptionalField("http", requests.http.values()),
      ...toOptionalField("aws", requests.aws.values()),
      ...([...ledger.values()].some((value) => value !== undefined) && { ledger: toObject(ledger) }),
      ...(cluster && { cluster }),
      ...(plurals.size > 0 && { plurals: Object.fromEntries(plurals) }),
    };
  };
  const noteCluster = (name: string) => {
    cluster = name;
  };
  return { take, ledger, noteCluster, list };
};

const countMembers = ({ allowed: _, reason: __, evaluationError: ___, ...access }: AccessQuestion & AccessAnswer) =>
  Object.values(access).filter((value) => value !== undefined).length;

/** Returns the parts of a request that a recording contains. Other parts only say how the request is sent. */
export const toRecordedRequest = ({ url, method, headers, body }: HttpsRequest) => ({
  url,
  ...(method !== undefined && { method }),
  ...(headers && { headers }),
  // A binary body can't be redacted.
  ...(typeof body === "string" && { body }),
});
