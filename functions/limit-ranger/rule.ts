import type { PersistentVolumeClaim, Pod } from "postern/kubernetes/core/v1";
import { list } from "postern/needs";
import { forbidden, joinErrors } from "postern/refusals";
import type { AdmissionRequest } from "postern/review";
import { type RequestMatch, rule } from "postern/rule";
import { listClaimOffences, listLimitOffencesOfPod } from "./bounds.ts";
import { addDefaults } from "./defaults.ts";
import { fitClaimToBounds, fitPodOrAdvise } from "./suggestion.ts";

type PodOrClaim = Pod | PersistentVolumeClaim;

const pods: RequestMatch[] = [
  { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] },
  { apiGroups: [""], apiVersions: ["v1"], resources: ["pods/resize"], operations: ["UPDATE"] },
];
const claims: RequestMatch = {
  apiGroups: [""],
  apiVersions: ["v1"],
  resources: ["persistentvolumeclaims"],
  operations: ["CREATE", "UPDATE"],
};

export default rule({
  summary:
    "Adds the defaults of a namespace's LimitRanges to containers, and refuses pods and claims that break a LimitRange.",
  order: 6,
  upstreamPlugin: { plugin: "LimitRanger" },
  match: { mutate: pods, validate: [...pods, claims] },
  matchConditions: {
    "is-not-being-deleted": `oldObject == null || oldObject.?metadata.?deletionTimestamp.orValue("") == ""`,
  },
  needs: {
    // A pod keeps its defaults (a resize can change few), so the LimitRanges for defaults are read without the cache.
    current: list("limitranges", { maxAge: 0 }),
    recent: list("limitranges"),
  },

  async mutate(pod: PodOrClaim, { request, oldObject, current }) {
    if (oldObject?.metadata?.deletionTimestamp || !isPod(pod, request)) return;
    for (const range of await current(request.namespace)) addDefaults(pod, range);
  },

  async validate(object: PodOrClaim, { request, oldObject, recent }) {
    if (oldObject?.metadata?.deletionTimestamp) return;
    for (const { spec } of await recent(request.namespace)) {
      const offences = (spec?.limits ?? []).flatMap((bounds) =>
        isPod(object, request) ? listLimitOffencesOfPod(bounds, object) : listClaimOffences(bounds, object),
      );
      if (offences.length > 0) return { refuse: forbidden(request, joinErrors(offences)) };
    }
  },

  async suggest(object: PodOrClaim, { request, oldObject, current }) {
    const allBounds = (await current(request.namespace)).flatMap(({ spec }) => spec?.limits ?? []);
    if (isPod(object, request)) return fitPodOrAdvise(object, allBounds);
    fitClaimToBounds(object, allBounds, oldObject && !isPod(oldObject, request) ? oldObject : null);
  },
});

const isPod = (_: PodOrClaim, { resource }: AdmissionRequest): _ is Pod => resource.resource === "pods";
