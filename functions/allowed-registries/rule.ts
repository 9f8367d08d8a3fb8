import type { Pod } from "postern/kubernetes/core/v1";
import { formatImage, parseImage } from "postern/objects/image";
import { listContainers, listContainersInCel, listImageVolumes } from "postern/objects/pod";
import { rule } from "postern/rule";
import { buildAllowedPattern, isAllowedRegistry, isRegistryEntry } from "./registries.ts";

const settings: { registries: string[] } = { registries: [] };

export default rule({
  summary: "Allows pods to use images only from listed registries.",
  match: [
    {
      apiGroups: [""],
      apiVersions: ["v1"],
      resources: ["pods", "pods/ephemeralcontainers"],
      operations: ["CREATE", "UPDATE"],
    },
  ],
  matchConditions: ({ registries }) => ({
    "changes-images": `oldObject == null || ${isLarge} || ${buildImageList("object")} != ${buildImageList("oldObject")}`,
    // The pattern also matches references of more than 255 characters, which the rule may refuse as invalid.
    "may-come-from-elsewhere": `${isLarge} || ${buildImageList("object")}.exists(image,
      size(image) > 255 || !image.matches(${JSON.stringify(buildAllowedPattern(registries))}))`,
  }),
  guards: true, // a security rule: hardening makes it fail closed
  settings,
  checkSettings({ registries }) {
    if (registries.length === 0) return "must list at least one registry under registries";
    const wrong = registries.filter((entry) => !isRegistryEntry(entry));
    if (wrong.length > 0)
      return `must list registries such as ghcr.io, ghcr.io/acme or *.corp.example, not ${quoteAll(wrong)}`;
  },

  validate(pod: Pod, { oldObject, settings: { registries } }) {
    const faults = listAddedImages(pod, oldObject).flatMap(({ place, reference }) => {
      const image = parseImage(reference);
      if (image === undefined) return [`${place} has ${printInvalidImage(reference)}`];
      return isAllowedRegistry(registries, image) ? [] : [`${place} has ${formatImage(image)}`];
    });
    if (faults.length > 0) return `images must come from ${registries.join(" or ")}; ${faults.join(", ")}`;
  },

  suggest(pod: Pod, { oldObject, settings: { registries } }) {
    const forbiddenImage = listAddedImages(pod, oldObject)
      .map(({ reference }) => parseImage(reference))
      .find((image) => image && !isAllowedRegistry(registries, image));
    // Wildcards such as `*.corp.example` and Docker Hub are not suggested: the host or the account is unknown.
    const place = registries.find((entry) => !/^\*\.|^docker\.io(\/library(\/|$)|$)/.test(entry));
    if (!forbiddenImage || !place) return;
    const [registry = "", ...folder] = place.split("/");
    const repository = [...folder, forbiddenImage.repository.replace(/^library\//, "")].join("/");
    return `copy ${formatImage(forbiddenImage)} to an allowed registry, and use ${formatImage({ ...forbiddenImage, registry, repository })}`;
  },
});

/** Lists the images of a pod, each with the place that a refusal names, such as `container "a"`. */
const listImageUses = (pod: Pod) => [
  ...listContainers(pod).map(({ container: { name, image }, path }) => ({
    place: name ? `container ${JSON.stringify(name)}` : path,
    reference: image ?? "",
  })),
  ...listImageVolumes(pod).map(({ image, path }) => ({ place: path, reference: image.reference ?? "" })),
];

/**
 * A CEL condition: true for a pod with more than 50 containers and volumes. A condition on their images would exceed
 * the API server's cost limit and fail, so the rule itself checks large pods.
 */
const isLarge = `size(${listContainersInCel("object")}) + size(object.spec.?volumes.orValue([])) > 50`;

const buildImageList = (object: "object" | "oldObject") =>
  `(${listContainersInCel(object)}.map(c, c.?image.orValue("")) +
    ${object}.spec.?volumes.orValue([]).filter(v, has(v.image)).map(v, v.image.?reference.orValue("")))`;

const listAddedImages = (pod: Pod, oldObject: Pod | null) => {
  const known = new Set(listImageUses(oldObject ?? {}).map(({ reference }) => reference));
  return listImageUses(pod).filter(({ reference }) => !known.has(reference));
};

const printInvalidImage = (reference: string) =>
  reference === "" ? "no image" : `${JSON.stringify(reference.slice(0, 100))} (no valid image reference)`;

const quoteAll = (entries: unknown[]) => entries.map((entry) => JSON.stringify(entry)).join(", ");
