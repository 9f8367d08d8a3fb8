import type { Pod } from "postern/kubernetes/core/v1";
import { listContainers, listContainersInCel, listImageVolumes } from "postern/objects/pod";
import { forbidden, formatFieldError, joinErrors } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import { rule } from "postern/rule";

export default rule({
  summary:
    "Sets the pull policy Always, so that a pod runs an image only if its own credentials give access to the image.",
  order: 10,
  upstreamPlugin: { plugin: "AlwaysPullImages" },
  match: ({ ephemeralContainers }) => [
    {
      apiGroups: [""],
      apiVersions: ["v1"],
      resources: ephemeralContainers ? ["pods", "pods/ephemeralcontainers"] : ["pods"],
      operations: ["CREATE", "UPDATE"],
    },
  ],
  matchConditions: {
    "may-do-without-a-pull": `${isTooLargeForCel("object")} || ${listContainersInCel("object")}.exists(c, c.?imagePullPolicy.orValue("") != "Always") ||
      object.spec.?volumes.orValue([]).exists(v, has(v.image) && v.image.?pullPolicy.orValue("") != "Always")`,
    "brings-an-image": `oldObject == null || ${isTooLargeForCel("object")} || ${listContainersInCel("object")}.exists(c,
      !${listContainersInCel("oldObject")}.exists(old, old.?image.orValue("") == c.?image.orValue("")))`,
  },
  settings: { ephemeralContainers: false },
  guards: true, // a security rule: hardening makes it fail closed

  mutate(pod: Pod, { request, oldObject, settings }) {
    setPullPolicies(selectAffected(pod, oldObject, request, settings));
  },

  validate(pod: Pod, { request, oldObject, settings }) {
    const { containers, images } = selectAffected(pod, oldObject, request, settings);
    const offences = [
      ...containers.map(({ container, path }) => ({
        field: `${path}.imagePullPolicy`,
        value: container.imagePullPolicy,
      })),
      ...images.map(({ image, path }) => ({ field: `${path}.pullPolicy`, value: image.pullPolicy })),
    ].filter(({ value }) => value !== "Always");

    if (offences.length > 0) return joinErrors(offences.map((offence) => buildRefusalMessage(request, offence)));
  },

  suggest(pod: Pod, { request, oldObject, settings }) {
    // The pull policies of an existing pod can't be changed.
    if (oldObject && !request.subResource) return;
    setPullPolicies(selectAffected(pod, oldObject, request, settings));
  },
});

const setPullPolicies = ({ containers, images }: ReturnType<typeof selectAffected>) => {
  for (const { container } of containers) container.imagePullPolicy = "Always";
  for (const { image } of images) image.pullPolicy = "Always";
};

const nothing = { containers: [], images: [] };

/** Returns the containers and image volumes whose pull policy must be Always. */
const selectAffected = (
  pod: Pod,
  old: Pod | null,
  { subResource }: AdmissionRequest,
  settings: { ephemeralContainers: boolean },
) => {
  if (subResource && !settings.ephemeralContainers) return nothing;

  const containers = listContainers(pod);
  const oldContainers = listContainers(old ?? {}).map(({ container }) => container);
  const oldImages = new Set(oldContainers.map(({ image }) => image));
  // An image that moves to another container of the pod is not new.
  if (old && containers.every(({ container }) => oldImages.has(container.image))) return nothing;
  if (!subResource) return { containers, images: listImageVolumes(pod) };

  const oldNames = new Set(oldContainers.map(({ name }) => name));
  return { ...nothing, containers: containers.filter(({ container }) => !oldNames.has(container.name)) };
};

/** Returns the message of a refusal because of one offence. As upstream does, `validate` joins complete messages. */
const buildRefusalMessage = (
  request: AdmissionRequest,
  { field, value = "" }: { field: string; value: string | undefined },
) => {
  // formatFieldError doesn't write the field itself.
  const error = formatFieldError({ field, type: "Unsupported value", value, detail: 'supported values: "Always"' });
  return forbidden(request, `${field}: ${error}`).message;
};

/**
 * Returns a CEL condition: true for a pod with more than 50 containers and volumes. A condition about their images
 * would exceed the API server's cost limit and fail, so the rule itself checks large pods.
 */
function isTooLargeForCel(pod: "object") {
  return `size(${listContainersInCel(pod)}) + size(${pod}.spec.?volumes.orValue([])) > 50`;
}
