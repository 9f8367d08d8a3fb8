import { readdir, readFile, stat } from "node:fs/promises";
import { basename, join, relative } from "node:path";
import { parseAllDocuments } from "yaml";
import { Failure } from "#lib/failure.ts";
import type { World } from "#lib/needs.ts";
import { type Recorded, recorded } from "#lib/recorded.ts";
import { Complaint, sentenceOf } from "./complaint.ts";

type Objects = NonNullable<Recorded["objects"]>;

/** What manifests can say of a cluster; whatever else it is asked, they don't know. */
export type Written = Pick<World, "get" | "list" | "create" | "may" | "discover">;

/** A cluster as manifests have it: all there is in a folder, and the namespaces that no cluster is without. */
export const writtenCluster = (objects: Objects): Written => {
  const { get, list, create } = recorded({ objects: [...born, ...objects] });
  const unknown = async () => {
    throw new Failure(503, "manifests don't say who may do what, or which kinds there are; only a cluster does");
  };
  return { get, list, create, may: unknown, discover: unknown };
};

const born: Objects = ["default", "kube-node-lease", "kube-public", "kube-system"].map((name) => {
  const labels = { "kubernetes.io/metadata.name": name };
  return { apiVersion: "v1", kind: "Namespace", metadata: { name, labels }, status: { phase: "Active" } };
});

/** Every object in the YAML and JSON files below a folder. What says no namespace and needs one is in `default`. */
export const readManifests = async (folder: string): Promise<Objects> => (await filesIn(folder)).flatMap(objectsIn);

/** A file of YAML or JSON, and what its documents hold; one that is empty holds null. */
export interface File {
  name: string;
  documents: unknown[];
}

/** A file, or all the YAML and JSON files below a folder. */
export const readFiles = async (place: string): Promise<File[]> => {
  const isFile = await stat(place).then(
    (found) => found.isFile(),
    () => false,
  );
  return isFile ? [await readOne(place, basename(place))] : filesIn(place);
};

const filesIn = async (folder: string): Promise<File[]> => {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch((error) => {
    throw new Complaint(`${folder} can't be read: ${sentenceOf(error)}`);
  });
  const files = entries
    .filter((entry) => entry.isFile() && /\.(ya?ml|json)$/.test(entry.name))
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort();
  return Promise.all(files.map((file) => readOne(file, relative(folder, file))));
};

const readOne = async (file: string, name: string): Promise<File> => {
  const documents = [...parseAllDocuments(await readFile(file, "utf8"), { prettyErrors: false })];
  const values = documents.map((document, index): unknown => {
    const [broken] = document.errors;
    if (broken) throw new Complaint(`${name}, document ${index + 1}, is no YAML: ${broken.message}`);
    return document.toJS();
  });
  return { name, documents: values };
};

const objectsIn = ({ name, documents }: File): Objects =>
  documents.flatMap((value, index) => {
    if (value === null) return [];
    const { kind, items } = Object(value);
    const place = `${name}, document ${index + 1},`;
    return (/List$/.test(kind) && Array.isArray(items) ? items : [value]).map((one) => objectOf(one, place));
  });

const objectOf = (value: unknown, place: string): Objects[number] => {
  const { apiVersion, kind, metadata } = Object(value);
  if (typeof apiVersion !== "string" || typeof kind !== "string" || typeof Object(metadata).name !== "string")
    throw new Complaint(`${place} is no manifest: it must have an apiVersion, a kind and a metadata.name`);
  // Checked above.
  const object = value as Objects[number];
  const { namespace } = object.metadata;
  return namespace === undefined && isNamespaced(apiVersion, kind)
    ? { ...object, metadata: { ...object.metadata, namespace: "default" } }
    : object;
};

const isNamespaced = (apiVersion: string, kind: string) =>
  apiVersion === "v1"
    ? !["Namespace", "Node", "PersistentVolume"].includes(kind)
    : ["apps/v1", "batch/v1"].includes(apiVersion);
