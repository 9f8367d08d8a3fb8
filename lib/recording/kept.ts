import { isRandom, looksLikeToken } from "./secret-forms.ts";

// Decides which texts a recording keeps. Any other text is free text, which may contain a secret.

/** The place of a text in an object: the key of the text, and the key of the map or list that contains it. */
export interface TextKeyAndParentKey {
  key: string;
  parentKey: string;
}

/**
 * The keys whose values a recording keeps if `isName` accepts them: names, addresses and other words that are public.
 */
const nameKeys = `
  kind name namespace uid group groups version versions resource resources type subresource subResource verb verbs scope
  scopes operation operations names plural singular shortNames categories driver provisioner controller manager handler
  component hostname hostnames host hosts subdomain username node finalizers topologyKey fieldPath mountPath fieldsType
  fsType volumeID volumeHandle ip ips cidr cidrs port targetPort architecture operatingSystem serviceAccount
  op cond from field targetOperations cpuFactor memoryFactor diskFactor`;
const nameKey = new RegExp(
  `^(?:${nameKeys.trim().split(/\s+/).join("|")}|\\w*(?:[Zz]one|[Rr]egion)|\\w*[a-z](?:Name|Namespace|Kind|Version|Group|Resource|Controller|Manager|IP|CIDR)s?)$`,
);
const name = /^[-\w.:/*@]{1,253}$/;

/** Reports whether an image contains a secret. The hash of a commit in its tag is none. */
const isSecretImage = (text: string) => {
  const [, repository = "", tag = ""] = /^(.*?)(:[^/]*)?$/.exec(text) ?? [];
  // For a text named `tag`, `looksLikeToken` accepts a digest or a hash. In a repository, they look like a token.
  return looksLikeToken(repository, []) || looksLikeToken(tag, ["tag"]);
};

/**
 * Keys whose values a recording keeps, as those of `nameKeys`, but only in certain parents: in others, the values may
 * be free text. The pattern matches the keys of these parents.
 */
const parentsWithNameIn: Record<string, RegExp> = {
  key: /^(?:tolerations|taints|match(?:Label)?Expressions|(?:secret|configMap)KeyRef|items)$/,
  value: /^(?:tolerations|taints)$/,
  values: /^match(?:Label)?Expressions$/,
  path: /^hostPath$/,
  user: /^seLinuxOptions$/,
  role: /^seLinuxOptions$/,
  level: /^seLinuxOptions$/,
};

/**
 * Reports whether a field that is named `key` or `secrets` contains no secret, by the key of its parent. In parents
 * such as `taints`, the field `key` contains a name. In a quota, the field `secrets` contains an amount.
 */
export const isHarmlessField = (field: string, parentKey: string): boolean =>
  field === "key"
    ? parentsWithNameIn.key?.test(parentKey) === true || /(?:Ref(?:erence)?|[Tt]opology)$/.test(parentKey)
    : field === "secrets" && quantitiesMap.test(parentKey);

/** Matches keys whose values are one of a few fixed words, such as `phase`, so that recordings keep the values. */
const fixedWordKey =
  /^(?:status|phase|reason|code|effect|operator|protocol|scheme|action|add|drop|procMount|whenUnsatisfiable|sideEffects|sessionAffinity|format|\w*[a-z](?:Policy|Policies|Mode|Modes|Type|Types|Strategy|Family|Families|Propagation|State|Scope|Class))$/;
const fixedWord = /^[A-Za-z][A-Za-z_.-]{0,39}\d{0,2}$/;

/** The fields that are maps with any keys. A key in such a map doesn't show whether its value is a secret. */
const freeTextMap = /^(?:data|stringData|binaryData|annotations|parameters|volumeAttributes|extra|headers)$/;

/** The fields with maps whose values are recorded if they match `label`. `plurals` has the plural names of kinds. */
const labelsMap = /^(?:labels|namespaceLabels|matchLabels|selector|nodeSelector|matchFields|plurals)$/;
/** The form of a label that may be recorded; a policy's placeholder, such as {{metadata.name}}, is allowed. */
const label = /^[-\w./{}]{1,63}$/;

/** Reports whether a text looks like a policy's field path and not like a random secret: recordings keep it then. */
export const isRecordableFieldPath = (text: string): boolean => /^[-\w./~[\]"]{1,253}$/.test(text) && !isRandom(text);

const image =
  /^(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::\d{1,5})?\/)?[a-z0-9]+(?:[._-]+[a-z0-9]+|\/[a-z0-9]+)*(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$/;

/** Keys of maps with amounts (`unseen`: workload-quota's ledger). Elsewhere, a text of digits may be a secret code. */
const quantitiesMap =
  /^(?:requests|limits|capacity|allocatable|hard|used|unseen|default|defaultRequest|max|min|maxLimitRequestRatio|overhead|podFixed|allocatedResources)$/;
/** The keys in such a map whose values are amounts. */
const quantityKey = /^(?:cpu|memory|storage|ephemeral-storage|pods|.*[/.].*|hugepages-.*|\w+s)$/;
/** The keys whose values are amounts in any map. */
const quantityKeyAnywhere = /^(?:sizeLimit|divisor|maxUnavailable|minAvailable|maxSurge)$/;
const quantity = /^[+-]?\d{1,19}(?:\.\d{1,9})?(?:[numkKMGTPE]i?|[eE][+-]?\d{1,3})?$/;

/** The annotations with a container's AppArmor or seccomp profile. */
const securityProfileKey =
  /^(?:container\.apparmor\.security\.beta|(?:container\.)?seccomp\.security\.alpha)\.kubernetes\.io\//;
const securityProfile = /^(?:(?:runtime|docker)\/default|unconfined|localhost\/[-\w./]{1,200})$/;

/** Texts whose form shows that they are no secret: booleans, times, durations, amounts with a unit. */
const harmless =
  /^(?:true|false|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)|(?:\d{1,6}(?:\.\d{1,3})?(?:h|m|s|ms))+|\d{1,9}(?:\.\d{1,3})?(?:[KMGTP]i|%)|\d{1,5}m)$/;

/** Reports whether a recording may keep a text: its key or form shows a name, image, quantity, time or fixed word. */
export const mayRecordText = (text: string, { key, parentKey }: TextKeyAndParentKey): boolean => {
  if (text === "" || harmless.test(text)) return true;
  // Of texts in annotations and other maps of free texts, only the names of AppArmor and seccomp profiles are kept.
  if (freeTextMap.test(parentKey))
    return parentKey === "annotations" && securityProfileKey.test(key) && securityProfile.test(text);
  if (key === "image" || key === "imageID") return text.length <= 512 && image.test(text) && !isSecretImage(text);
  if (labelsMap.test(parentKey)) return label.test(text) && !looksLikeToken(text, [key]);
  if (quantityKeyAnywhere.test(key) || (quantitiesMap.test(parentKey) && quantityKey.test(key)))
    return quantity.test(text);
  if (fixedWordKey.test(key)) return fixedWord.test(text);
  return (
    (nameKey.test(key) ||
      (Object.hasOwn(parentsWithNameIn, key) && parentsWithNameIn[key]?.test(parentKey) === true)) &&
    isName(text, key, parentKey)
  );
};

/** The keys of maps in which names may contain colons. In other places, a password may follow a colon. */
const parentOfNamesWithColon = /^(?:user|metadata|request|roleRef|subjects|ownerReferences)$/;

/**
 * Reports whether a text is a name that contains no user of a URL, no password after a colon, and no random token. A
 * UUID counts as a token only under the keys of `parentsWithNameIn`, such as `value`, which is a name in some maps and
 * may be a secret in others. For all other keys, `looksLikeToken` gets "id", with which a UUID isn't a token.
 */
const isName = (text: string, key: string, parentKey: string) =>
  name.test(text) &&
  !/\/\/|:[^/]*@/.test(text) &&
  (!text.includes(":") || parentOfNamesWithColon.test(parentKey) || /^system:|^[^:]*:\d{1,5}$/.test(text)) &&
  !looksLikeToken(text, [Object.hasOwn(parentsWithNameIn, key) ? key : "id"]);

/** Matches keys of maps: a plain key, a key of managed fields (`f:…`), or a host with a port. */
const mapKey = /^(?:(?:f:)?[-\w./]{0,253}|(?:localhost|[-\w]{1,99}\.[-\w./]{1,99}):\d{1,5})$/;

/**
 * Reports whether a recording keeps a map's key. It replaces a key that Kubernetes would reject, or that looks like a
 * token.
 */
export const mayRecordMapKey = (key: string): boolean =>
  mapKey.test(key) && !/\/\//.test(key) && !looksLikeToken(key, []);
