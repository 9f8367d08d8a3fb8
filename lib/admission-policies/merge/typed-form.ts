import { getOwn, isMap, isObject, type JsonMap, toList } from "../../json.ts";

/** The fields that are maps in Go. Go omits an empty map, but writes other empty objects, which are structs. */
const mapFields = new Set(
  (
    "allocatedResources allocatedResourceStatuses annotations attachmentMetadata attributes binaryData capacity counters data " +
    "default defaultRequest deprecatedTopology extra hard labels limits matchLabels max maxLimitRequestRatio min nodeSelector " +
    "options overhead parameters properties requests selector stringData used volumeAttributes"
  ).split(" "),
);
/**
 * The fields that are structs in these kinds, although a field of the same name is a map in other kinds. A selector is
 * a struct in all kinds but Service and ReplicationController.
 */
const structFields =
  /^(?:ControllerRevision\.data|RuntimeClass\.overhead|IngressClass\.parameters|(?!Service\.|ReplicationController\.)\w+\.selector)$/;
/** The lists that Go writes even if they are empty: some in all kinds, others only in the named kinds. */
const listsWrittenEmpty =
  /\.(?:containers|verbs|paths|monitors|sources|nodeSelectorTerms|drivers|admissionReviewVersions|limits)$|^(?:(?:Cluster)?Role\.rules|EndpointSlice\.(?:endpoints|ports|addresses)|FlowSchema\.(?:subjects|apiGroups|resources|namespaces|nonResourceURLs)|(?:Cron)?Job\.rules|StorageClass\.values|CSINode\.topologyKeys)$/;

/**
 * Returns an object of a built-in kind as Go writes it after a mutation: without fields that are empty lists or Go
 * maps, such as labels, but with empty structs, such as `emptyDir: {}`. Empty maps and structs are both `{}` in JSON:
 * names of fields tell them apart (see `mapFields`), because the bundle of a Lambda function may lack a kind's schema.
 * Parts that the mutation didn't change are kept; `before` is the object before the mutation.
 */
export const toTypedForm = (object: JsonMap, before: JsonMap): JsonMap =>
  dropEmptyFields(String(object.kind), object, before) as JsonMap;

/** Leaves out the empty fields that Go omits, in a value and its parts. `before` is the value before the mutation. */
const dropEmptyFields = (kind: string, value: unknown, before: unknown): unknown => {
  if (value === before) return value;
  if (Array.isArray(value)) return value.map((element, index) => dropEmptyFields(kind, element, toList(before)[index]));
  if (!isMap(value)) return value;
  const kept: [string, unknown][] = [];
  for (const [key, member] of Object.entries(value)) {
    const previous = getOwn(before, key);
    const result = dropEmptyFields(kind, member, previous);
    // At any depth, a field named in `mapFields` is a map, unless it is a struct in this kind. Go keeps empty structs.
    const kindAndKey = `${kind}.${key}`;
    const isOmitted = Array.isArray(result)
      ? result.length === 0 && !listsWrittenEmpty.test(kindAndKey)
      : isMap(result) && Object.keys(result).length === 0 && mapFields.has(key) && !structFields.test(kindAndKey);
    // A field that was empty before the mutation is kept.
    if (!isOmitted || isEmpty(previous)) kept.push([key, result]);
  }
  return Object.fromEntries(kept);
};

const isEmpty = (value: unknown): boolean => isObject(value) && Object.keys(value).length === 0;
