import type { Pod } from "postern/kubernetes/core/v1";
import { type HttpsResponse, https } from "postern/needs";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";
import { backendSettings, buildConnection, findBackendFault, listCredentialPlaces } from "./backend.ts";
import { formatImageReview, parseImageReviewAnswer, toUnreachableServiceOutcome } from "./image-review.ts";

/** `imagePolicy` has the settings of kube-apiserver's plugin; a kubeconfig fills `backend`. */
const settings = {
  imagePolicy: { kubeConfigFile: "", allowTTL: 0, denyTTL: 0, retryBackoff: 0, defaultAllow: false },
  backend: backendSettings,
};

/** The webhook's timeout. It is long, because the service may inspect an image before it answers. */
const timeoutSeconds = 10;

export default rule({
  summary: "Asks a service of your own whether the images of a pod may run.",
  order: 11,
  upstreamPlugin: { plugin: "ImagePolicyWebhook" },
  match: [
    { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] },
    { apiGroups: [""], apiVersions: ["v1"], resources: ["pods/ephemeralcontainers"], operations: ["UPDATE"] },
  ],
  guards: true, // a security rule: hardening makes it fail closed
  timeoutSeconds,
  settings,
  // If `imagePolicy.kubeConfigFile` names a kubeconfig file, its content becomes the setting `backend`.
  kubeconfigs: { "imagePolicy.kubeConfigFile": "backend" },
  checkSettings({ imagePolicy, backend }) {
    const backendFault = findBackendFault(backend);
    if (backendFault !== undefined) return backendFault;
    for (const [key, most] of Object.entries({ allowTTL: 1800, denyTTL: 1800, retryBackoff: 300_000 } as const)) {
      const value = Reflect.get(imagePolicy, key);
      if (value < -1 || value > most) return `must have -1, 0 or a number up to ${most} as ${key}, not ${value}`;
    }
  },
  needs: { images: https(({ backend }: typeof settings) => listCredentialPlaces(backend)) },

  async validate(pod: Pod, { request, settings: { imagePolicy, backend }, images }) {
    const url = new URL(backend.url);
    url.searchParams.set("timeout", `${timeoutSeconds}s`);
    const answer = await images({
      url: url.href,
      method: "POST",
      headers: { accept: "application/json", "content-type": "application/json" },
      body: formatImageReview(pod, request),
      ...buildConnection(backend),
      tries: 5,
      pause: getNumberOrDefault(imagePolicy.retryBackoff, 500),
      // Returns the seconds for which the answer is cached.
      keep: (response: HttpsResponse) => {
        const { allowed, fault } = parseImageReviewAnswer(response);
        if (fault !== undefined) return 0;
        return allowed ? getNumberOrDefault(imagePolicy.allowTTL, 300) : getNumberOrDefault(imagePolicy.denyTTL, 30);
      },
      isLasting: true, // the rule may refuse because of a cached answer, without asking the service again
    }).then(parseImageReviewAnswer, toUnreachableServiceOutcome);

    if (answer.fault !== undefined)
      return imagePolicy.defaultAllow
        ? { audit: { "failed-open": "true" } }
        : { refuse: forbidden(request, answer.fault) };
    if (answer.allowed) return { audit: answer.audit };
    const reason = answer.reason
      ? `image policy webhook backend denied one or more images: ${answer.reason}`
      : "one or more images rejected by webhook backend";
    return { refuse: forbidden(request, reason), audit: answer.audit };
  },
});

/** Returns a number from the settings. As in upstream, 0 stands for the default, and -1 for the number 0. */
const getNumberOrDefault = (number: number, defaultNumber: number) =>
  number === 0 ? defaultNumber : Math.max(0, number);
