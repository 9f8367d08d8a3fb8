import { readFileSync } from "node:fs";
import { parse } from "yaml";
import type { JsonMap } from "#lib/json.ts";
import type { TestClusterClient } from "../../control-plane/client.ts";
import { getCollectionPath } from "../../control-plane/client.ts";
import { getServedVersion } from "./served-versions.ts";

interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; ownerReferences?: { name: string }[] };
  /** The status, which is written to the status subresource after the create, because a create drops it. */
  status?: JsonMap;
}

const objects: Manifest[] = parse(readFileSync(new URL("surroundings.yaml", import.meta.url), "utf8"));

const listNames = (kind: string) =>
  objects.filter((object) => object.kind === kind).map(({ metadata }) => metadata.name);

/** The names of the existing namespaces that generated requests may use, besides `default`. */
export const generatorNamespaceNames: readonly string[] = listNames("Namespace");

export const generatorRuntimeClassNames: readonly string[] = listNames("RuntimeClass");

/** Namespaces and objects that are deleted but remain, marked as terminating, because a finalizer keeps them. */
const terminatingNames = ["ending", "ended-work"];

/** Creates the objects that generated requests refer to, except kinds that this minor of Kubernetes doesn't serve. */
export const createParityTestObjects = async (admin: TestClusterClient, minor: string): Promise<void> => {
  const send = async (method: "POST" | "PATCH" | "DELETE", path: string, body?: object) => {
    const contentType = { ...(method === "PATCH" && { contentType: "application/merge-patch+json" }) };
    const answer = await admin({ method, path, body, ...contentType });
    if (answer.code >= 300) throw new Error(`the API server refuses ${path}: ${answer.body.message}`);
    return answer.body;
  };
  const served = objects.flatMap((object) => {
    const apiVersion = getServedVersion(object.kind, object.apiVersion, minor);
    return apiVersion === undefined ? [] : [{ ...object, apiVersion }];
  });
  const uids = new Map<string, unknown>();
  for (const { status, ...object } of served) {
    const { name, ownerReferences } = object.metadata;
    const owners = ownerReferences?.map((owner) => ({ ...owner, uid: uids.get(owner.name) }));
    const metadata = { ...object.metadata, ...(owners && { ownerReferences: owners }) };
    const created = await send("POST", getCollectionPath(object), { ...object, metadata });
    uids.set(name, Object(created.metadata).uid);
    if (status) await send("PATCH", `${getCollectionPath(object)}/${name}/status`, { status });
  }
  for (const object of served.filter(({ metadata }) => terminatingNames.includes(metadata.name)))
    await send("DELETE", `${getCollectionPath(object)}/${object.metadata.name}`);
};
