import { Failure } from "#lib/failure.ts";
import { isObject } from "#lib/json.ts";
import { createMemoryLedger, openRuleLedger } from "#lib/ledger.ts";
import type { Capabilities } from "#lib/needs.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { isCustomResourceGroup, type KindIndex } from "../../apiserver/kinds/kinds.ts";
import { isSecret } from "../../diff/secret-values.ts";
import { type ObjectStore, openObjectStore } from "../../manifests/object-store.ts";

/** The objects that exist during a check: the given ones and those admitted since. */
export interface ExistingObjects extends Omit<ObjectStore, "list" | "findAccess"> {
  /** Returns the functions by which rules ask for objects; `reportUnknown` gets what these can't answer. */
  capabilities(reportUnknown: (sentence: string) => void): Capabilities;
}

/** The change of an object that is undecided, so that the object may be another one, or not exist. */
const undecidedChanges = new WeakMap<object, string>();

/** Marks an object as uncertain: an undecided request would create, update or delete it. */
export const markUndecidedChange = (object: KubernetesObject, operation: Operation): void => {
  const change = { CREATE: "creation", DELETE: "deletion" }[String(operation)] ?? "update";
  undecidedChanges.set(object, `its ${change} is undecided`);
};

/** Returns why a cluster may have an object with other content, or may lack it; undefined if the object is certain. */
export const describeUndecidedChange = (object: KubernetesObject): string | undefined =>
  undecidedChanges.get(object) ??
  (object.metadata?.annotations?.[contentOmittedAnnotation] === undefined ? undefined : "its content isn't saved");

/** The annotation of an object in a saved state whose content isn't saved. */
export const contentOmittedAnnotation = "postern.dev/content-not-saved";

/**
 * Creates an empty store in memory, which stands for a cluster that serves these kinds. Calls `note` when an object
 * with unknown content is read from it.
 */
export const createEmptyObjectStore = (
  cluster: string,
  kinds: KindIndex,
  note: (sentence: string) => void,
): ExistingObjects => {
  const store = openObjectStore(kinds, note);
  const ledger = createMemoryLedger();
  return { ...store, capabilities: (reportUnknown) => toCapabilities(store, cluster, kinds, ledger, reportUnknown) };
};

/**
 * Answers rules' questions from the objects of a check. Calls `reportUnknown` for what these can't answer, and for what
 * is uncertain in an answer. Its argument continues a report's line that begins with "undecided", such as "undecided
 * Priority: whether …".
 */
const toCapabilities = (
  { find, put, list, findAccess }: ObjectStore,
  cluster: string,
  kinds: KindIndex,
  ledger: ReturnType<typeof createMemoryLedger>,
  reportUnknown: (sentence: string) => void,
): Capabilities => {
  const giveUp = (sentence: string): never => {
    reportUnknown(sentence);
    throw new Failure(503, sentence);
  };
  const noteUncertain = <T extends KubernetesObject | undefined>({ resource }: { resource: string }, object: T): T => {
    const reason = object && describeUndecidedChange(object);
    if (reason) reportUnknown(`whether ${resource} "${object.metadata?.name}" exists as it is here, because ${reason}`);
    return object;
  };
  const refuseHttp = async ({ url }: { url: string }) => giveUp(`it asks ${getHost(url)}, and nothing is asked here`);
  return {
    get: async (kind, name, namespace) => noteUncertain(kind, find(kind, name, namespace)),
    list: async (kind, ...more) => (await list(kind, ...more)).map((object) => noteUncertain(kind, object)),
    create: async (kind, object) => {
      const { namespace, name = "" } = object.metadata ?? {};
      if (noteUncertain(kind, find(kind, name, namespace)) !== undefined) return "exists";
      put(kind, structuredClone(object));
      return "created";
    },
    updateStatus: async (kind, object) => {
      const changed = structuredClone(object);
      const before = find(kind, object.metadata?.name ?? "", object.metadata?.namespace);
      const reason = before && describeUndecidedChange(before);
      if (reason) undecidedChanges.set(changed, reason);
      put(kind, changed);
      return "updated";
    },
    may: async (access) => {
      const { user, verb, resource, subresource, namespace } = access;
      const what = [resource, subresource].filter(Boolean).join("/");
      const where = namespace ? ` in ${namespace}` : "";
      return (
        findAccess(access) ??
        giveUp(
          `whether ${user.username} may ${verb} ${what}${where}, only the cluster says, or a SubjectAccessReview with its status in --state`,
        )
      );
    },
    discover: async (groupVersion) => {
      const found = kinds.discover(groupVersion);
      if (found !== undefined || !isCustomResourceGroup(splitApiVersion(groupVersion).group)) return found;
      return giveUp(
        `which kinds there are in ${groupVersion}, only the cluster says, or its CustomResourceDefinitions`,
      );
    },
    https: refuseHttp,
    http: refuseHttp,
    aws: async (action) => giveUp(`it asks AWS by ${action}, and nothing is asked here`),
    // The configuration language CUE needs nothing from a cluster.
    cue: (source, evaluateCue) => evaluateCue(source),
    cluster,
    ledger: (rule) => openRuleLedger(ledger, rule),
    count: () => {},
  };
};

const getHost = (url: string) => (URL.canParse(url) ? new URL(url).host : "an address");

/** Returns capabilities that add each Secret that they read to `found`, also if they read without a cache (`anew`). */
export const noteSecretsRead = (capabilities: Capabilities, found: Set<object>): Capabilities => {
  const note = <T>(object: T): T => {
    if (isObject(object) && isSecret(object)) found.add(object);
    return object;
  };
  return {
    ...capabilities,
    get: async (...question) => note(await capabilities.get(...question)),
    list: async (...question) => (await capabilities.list(...question)).map(note),
    ...(capabilities.anew && {
      anew: () => {
        const fresh = capabilities.anew?.();
        return fresh && noteSecretsRead(fresh, found);
      },
    }),
  };
};
