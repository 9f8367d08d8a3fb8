import { stringify } from "yaml";
import { isMap, isText, toList, toMap } from "#lib/json.ts";
import { Complaint } from "../cli/complaint.ts";
import { describeFoundValue } from "../cli/shape.ts";
import { readManifestsStrictly } from "../manifests/input.ts";
import { type ObjectSchema, printDeclaration } from "./object-types.ts";

/** The file in a rule's folder with the CustomResourceDefinition of its kind. */
export const definitionFile = "crd.yaml";

/** The file in a rule's folder with the kind's types. It isn't named after the kind, which may be called Rule. */
const typesFile = "types.ts";

/** The files of a rule for a custom kind. They are made from those of a rule for pods. */
export interface CustomKindFiles {
  /** The texts of additional files, by name: the CustomResourceDefinition and the types. */
  files: Record<string, string>;
  /** Changes the text of a file of a rule for pods, so that it is about this kind. */
  adapt(file: string, text: string): string;
}

/** Reads a file with one CustomResourceDefinition. */
export const readCustomKind = async (path: string): Promise<CustomKindFiles> => {
  const definitions = (await readManifestsStrictly([path])).filter(
    ({ object }) => toMap(object).kind === "CustomResourceDefinition",
  );
  const [{ object } = { object: undefined }] = definitions;
  if (!isMap(object) || definitions.length !== 1)
    throw new Complaint(`${path} must have one CustomResourceDefinition, but it has ${definitions.length}`);
  const spec = toMap(object.spec);
  const names = toMap(spec.names);
  const found = toList(spec.versions).map(toMap);
  const version = found.find(({ storage }) => storage === true) ?? {};
  /** Returns a word that matches a pattern, so that it can be put into source files. Throws for any other value. */
  const read = (expected: string, value: unknown, pattern: RegExp): string => {
    if (isText(value) && pattern.test(value)) return value;
    throw new Complaint(`${path} must have ${expected}${describeFoundValue({ value })}`);
  };
  const label = /^[a-z][a-z0-9-]{0,62}$/;
  const kind = read("a spec.names.kind such as Widget", names.kind, /^[A-Z][A-Za-z0-9]{0,62}$/);
  const plural = read("a spec.names.plural such as widgets", names.plural, label);
  const group = read("a spec.group such as example.com", spec.group, /^[a-z0-9][a-z0-9.-]{0,252}$/);
  const name = read("a version with storage: true and a name such as v1", version.name, label);

  const schema: ObjectSchema = toMap(toMap(version.schema).openAPIV3Schema);
  const properties = { ...schema.properties, apiVersion: {}, kind: {}, metadata: { $ref: ".ObjectMeta" } };
  const kinds = [{ group, version: name, kind }];
  const print = () => {
    try {
      return printDeclaration(kind, { ...schema, properties, "x-kubernetes-group-version-kind": kinds });
    } catch {
      const advice = `kubectl apply --dry-run=server -f ${path} says what is wrong`;
      throw new Complaint(`${path} has a schema in version ${name} that API servers refuse; ${advice}`);
    }
  };
  const apiVersion = `${group}/${name}`;
  const matchText = `{ apiGroups: ["${group}"], apiVersions: ["${name}"], resources: ["${plural}"]`;
  return {
    files: {
      [definitionFile]: stringify(object),
      [typesFile]: `// The types of ${kind} in ${apiVersion}, made from ${definitionFile}.
import type { ObjectMeta } from "postern/kubernetes/meta/v1";

${print()}`,
    },
    // In rule.ts, "pod" is the name of a variable. In cases.yaml and README.md, it is a word of a sentence.
    adapt: (file, text) =>
      file === "rule.ts"
        ? text
            .replace(/import type \{ Pod \} from ".*";\n(.*\n)/, `$1import type { ${kind} } from "./${typesFile}";\n`)
            .replace(/\{ apiGroups: .* resources: \["pods"\]/, matchText)
            .replace("every pod", `every ${kind}`)
            .replaceAll(/\bPod\b/g, kind)
            .replaceAll(/\bpod\b/g, "object")
        : text
            .replaceAll("{ metadata:", `{ apiVersion: ${apiVersion}, kind: ${kind}, metadata:`)
            .replaceAll(/\bpods\b/g, plural)
            .replaceAll(/\bpod\b/g, kind),
  };
};
