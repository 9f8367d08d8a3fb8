import { readdir, readFile, stat } from "node:fs/promises";
import { basename, join, relative } from "node:path";
import { isNode, LineCounter, parseAllDocuments } from "yaml";
import { Failure } from "#lib/failure.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { RecordedCapabilityAnswers } from "#lib/recorded-answers.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { apiServerOwnObjects, listInitialNamespaceObjects } from "./initial-objects.ts";
import { createRecordedCluster, findServedResource, listServedResources } from "./kinds/served.ts";

type Objects = NonNullable<RecordedCapabilityAnswers["objects"]>;

/** The capabilities of a cluster made of manifests; `may` always throws. */
export type ManifestCluster = Pick<
  Capabilities,
  "get" | "list" | "listPage" | "create" | "updateStatus" | "may" | "discover"
>;

/** Returns a cluster of these objects and of the initial objects that every cluster and namespace has. */
export const createManifestCluster = (objects: Objects, kubernetes?: string): ManifestCluster => {
  const namespaces = [...apiServerOwnObjects, ...objects].filter(
    ({ apiVersion, kind }) => apiVersion === "v1" && kind === "Namespace",
  );
  const within = namespaces.flatMap(({ metadata }) => listInitialNamespaceObjects(metadata.name));
  const all = [...apiServerOwnObjects, ...within, ...objects];
  const { get, list, create, updateStatus, discover } = createRecordedCluster({ objects: all }, kubernetes);
  const may = async () => {
    throw new Failure(503, "a folder of manifests has no authorizer; only a cluster can answer access reviews");
  };
  const listPage: ManifestCluster["listPage"] = async (kind, limit, next) => {
    const listed = await list(kind);
    const [start, end] = [Number(next), Number(next) + limit];
    return { items: listed.slice(start, end), version: "v1", next: end < listed.length ? String(end) : "" };
  };
  return { get, list, listPage, create, updateStatus, discover, may };
};

/** Reads every object in the YAML and JSON files below a folder. A missing namespace becomes `default`. */
export const readManifestFolder = async (folder: string): Promise<Objects> =>
  addDefaultNamespaces((await readFolder(folder)).flatMap(listFileObjects));

/**
 * Returns values that are Kubernetes objects, with `default` for a missing namespace; throws for any other value,
 * with its `place`.
 */
export const requireKubernetesObjects = (values: readonly unknown[], place: string): Objects =>
  addDefaultNamespaces(values.map((value, index) => requireObject(value, `${place}[${index}]`)));

/** A YAML or JSON file and its documents; an empty document is null. */
export interface ManifestFile {
  name: string;
  text: string;
  documents: unknown[];
  /** Returns the line and column of a field of a document, or of what the file has of its path, as `:3:5`. */
  findPosition(document: number, path: readonly (string | number)[]): string;
}

/** Reads a file, or all YAML and JSON files below a folder. `nameOf` turns a path into the name of the file. */
export const readManifestFiles = async (
  place: string,
  nameOf = (file: string) => relative(place, file) || basename(file),
): Promise<ManifestFile[]> => {
  const isFile = await stat(place).then(
    (found) => found.isFile(),
    () => false,
  );
  return isFile ? [await readManifestFile(place, nameOf(place))] : readFolder(place, nameOf);
};

const readFolder = async (
  folder: string,
  nameOf = (file: string) => relative(folder, file),
): Promise<ManifestFile[]> => {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch((error) => {
    throw new Complaint(`${folder} can't be read: ${toSentence(error)}`);
  });
  const files = entries
    .filter((entry) => entry.isFile() && /\.(ya?ml|json)$/.test(entry.name))
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort();
  return Promise.all(files.map((file) => readManifestFile(file, nameOf(file))));
};

const readManifestFile = async (file: string, name: string): Promise<ManifestFile> => {
  const text = await readFile(file, "utf8");
  const lineCounter = new LineCounter();
  const documents = [...parseAllDocuments(text, { prettyErrors: false, lineCounter })];
  const values = documents.map((document): unknown => {
    const createYamlComplaint = (offset: number, why: string) =>
      new Complaint(`${name}:${lineCounter.linePos(offset).line} is no YAML: ${why}`);
    const [fault] = document.errors;
    if (fault) throw createYamlComplaint(fault.pos[0], fault.message);
    try {
      return document.toJS();
    } catch (error) {
      // `toJS` throws for unresolved aliases and for too many of them.
      throw createYamlComplaint(document.contents?.range[0] ?? document.range[0], toSentence(error));
    }
  });
  const findPosition: ManifestFile["findPosition"] = (index, path) => {
    const document = documents[index];
    for (let length = path.length; document && length >= 0; length--) {
      const node = document.getIn(path.slice(0, length), true);
      if (!isNode(node) || !node.range) continue;
      const { line, col } = lineCounter.linePos(node.range[0]);
      return `:${line}:${col}`;
    }
    return "";
  };
  return { name, text, documents: values, findPosition };
};

const listFileObjects = ({ name, documents }: ManifestFile): Objects =>
  documents.flatMap((value, index) => {
    if (value === null) return [];
    const { kind, items } = Object(value);
    const place = `${name}, document ${index + 1},`;
    return (/List$/.test(kind) && Array.isArray(items) ? items : [value]).map((item) => requireObject(item, place));
  });

const requireObject = (value: unknown, place: string): Objects[number] => {
  const { apiVersion, kind, metadata } = Object(value);
  if (typeof apiVersion !== "string" || typeof kind !== "string" || typeof Object(metadata).name !== "string")
    throw new Complaint(`${place} is no manifest: it must have an apiVersion, a kind and a metadata.name`);
  // Checked above.
  return value as Objects[number];
};

const addDefaultNamespaces = (objects: Objects): Objects => {
  const served = listServedResources(objects);
  return objects.map((object) =>
    object.metadata.namespace === undefined && findServedResource(served, object)?.namespaced
      ? { ...object, metadata: { ...object.metadata, namespace: "default" } }
      : object,
  );
};
