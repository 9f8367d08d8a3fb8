import { basename, relative } from "node:path";
import { Failure } from "#lib/failure.ts";
import { getOwn } from "#lib/json.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { apiServerOwnObjects } from "../apiserver/initial-objects.ts";
import { createKindIndex } from "../apiserver/kinds/kinds.ts";
import { inferServedKinds } from "../apiserver/kinds/served.ts";
import { Complaint } from "../cli/complaint.ts";
import { readManifestsStrictly } from "./input.ts";
import { openObjectStore, setNamespace, toStoredObject } from "./object-store.ts";

/** What rules can read and write in a cluster that is imitated by a folder of manifests. */
export type ManifestCluster = Pick<
  Capabilities,
  "get" | "list" | "listPage" | "create" | "updateStatus" | "may" | "discover"
>;

/** Reads a folder of manifests as if it were a cluster. Messages name the files relative to `base`. */
export const readManifestCluster = async (
  folder: string,
  kubernetes?: string,
  base = folder,
): Promise<ManifestCluster> => {
  const nameFile = (file: string) => relative(base, file) || basename(file);
  const manifests = await readManifestsStrictly([folder], nameFile);
  // A SubjectAccessReview needs no name, because a cluster answers it and doesn't store it.
  for (const { object, source, line } of manifests)
    if (typeof getOwn(object.metadata, "name") !== "string" && object.kind !== "SubjectAccessReview")
      throw new Complaint(`${nameFile(source.name)}:${line} must have a metadata.name, as all that a cluster stores`);
  return createManifestCluster(
    manifests.map(({ object }) => object),
    kubernetes,
  );
};

/** Returns a cluster with these objects, and with the initial objects that every cluster and namespace has. */
const createManifestCluster = (objects: readonly KubernetesObject[], kubernetes?: string): ManifestCluster => {
  const kinds = createKindIndex(inferServedKinds(objects, kubernetes));
  const { find, put, list, findAccess } = openObjectStore(kinds, () => {});
  for (const object of [...apiServerOwnObjects, ...objects]) {
    const kind = kinds.of(object.apiVersion ?? "", object.kind ?? "");
    if (kind) put(kind.resource, toStoredObject(setNamespace(object, kind, "default"), kubernetes));
  }
  return {
    get: async (kind, name, namespace) => find(kind, name, namespace),
    list,
    listPage: async (kind, limit, next) => {
      const listed = await list(kind);
      const [start, end] = [Number(next), Number(next) + limit];
      return { items: listed.slice(start, end), version: "v1", next: end < listed.length ? String(end) : "" };
    },
    create: async (kind, object) => {
      if (find(kind, object.metadata?.name ?? "", object.metadata?.namespace) !== undefined) return "exists";
      put(kind, structuredClone(object));
      return "created";
    },
    updateStatus: async (kind, object) => {
      const { name = "", namespace, resourceVersion } = object.metadata ?? {};
      const found = find(kind, name, namespace);
      if (!found || found.metadata?.resourceVersion !== resourceVersion) return "changed";
      put(kind, {
        ...structuredClone(object),
        metadata: { ...found.metadata, resourceVersion: `${resourceVersion ?? ""}1` },
      });
      return "updated";
    },
    may: async (access) => {
      const found = findAccess(access);
      if (found) return found;
      throw new Failure(
        503,
        "a folder of manifests has no authorizer; only a cluster, or a SubjectAccessReview with its status among the manifests, can answer access reviews",
      );
    },
    discover: async (groupVersion) => kinds.discover(groupVersion),
  };
};
