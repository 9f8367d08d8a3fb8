import { getOwn, isMap, isObject, type JsonMap, toList } from "../../json.ts";

/** Fields that are maps in types of the API server. Other empty objects are structs, which are written. */
const maps = new Set(
  (
    "allocatedResources allocatedResourceStatuses annotations attachmentMetadata attributes binaryData capacity counters data " +
    "default defaultRequest deprecatedTopology extra hard labels limits matchLabels max maxLimitRequestRatio min nodeSelector " +
    "options overhead parameters properties requests selector stringData used volumeAttributes"
  ).split(" "),
);
/** Fields that are maps in other kinds, but not in these. */
const structs =
  /^(?:ControllerRevision\.data|RuntimeClass\.overhead|IngressClass\.parameters|(?!Service\.|ReplicationController\.)\w+\.selector)$/;
/** Lists that types of the API server write even if they are empty: in all kinds, or in the kinds that are named. */
const writtenLists =
  /\.(?:containers|verbs|paths|monitors|sources|nodeSelectorTerms|drivers|admissionReviewVersions|limits)$|^(?:(?:Cluster)?Role\.rules|EndpointSlice\.(?:endpoints|ports|addresses)|FlowSchema\.(?:subjects|apiGroups|resources|namespaces|nonResourceURLs)|(?:Cron)?Job\.rules|StorageClass\.values|CSINode\.topologyKeys)$/;

/**
 * Returns an object of a built-in kind as the API server's types write it after a change: without fields that are an empty list
 * or map. What didn't change stays as it is. Names of fields decide here, so that the bundles of rules need no schemas.
 */
export const toTypedForm = (object: JsonMap, before: JsonMap): JsonMap =>
  dropEmptyFields(String(object.kind), object, before) as JsonMap;

const dropEmptyFields = (kind: string, value: unknown, before: unknown): unknown => {
  if (value === before) return value;
  if (Array.isArray(value)) return value.map((element, index) => dropEmptyFields(kind, element, toList(before)[index]));
  if (!isMap(value)) return value;
  const kept: [string, unknown][] = [];
  for (const [key, member] of Object.entries(value)) {
    const previous = getOwn(before, key);
    const result = dropEmptyFields(kind, member, previous);
    const name = `${kind}.${key}`;
    const isOmitted = Array.isArray(result)
      ? result.length === 0 && !writtenLists.test(name)
      : isMap(result) && Object.keys(result).length === 0 && maps.has(key) && !structs.test(name);
    if (!isOmitted || isEmpty(previous)) kept.push([key, result]);
  }
  return Object.fromEntries(kept);
};

const isEmpty = (value: unknown): boolean => isObject(value) && Object.keys(value).length === 0;
