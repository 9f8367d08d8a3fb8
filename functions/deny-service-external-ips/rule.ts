import type { Service } from "postern/kubernetes/core/v1";
import { forbidden } from "postern/refusals";
import { rule } from "postern/rule";

export default rule({
  summary: "Refuses to create a service with external IPs, or to add external IPs to a service.",
  order: 30,
  upstreamPlugin: { plugin: "DenyServiceExternalIPs" },
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["services"], operations: ["CREATE", "UPDATE"] }],
  matchConditions: {
    // A matchCondition that exceeds the API server's cost limit fails. So the API server calls the rule for each
    // service with more than 50 external IPs, and the rule itself checks them.
    "takes-an-external-ip": `size(object.?spec.?externalIPs.orValue([])) > 50 || object.?spec.?externalIPs.orValue([])
      .exists(ip, oldObject == null || !(ip in oldObject.?spec.?externalIPs.orValue([])))`,
  },
  guards: true, // a security rule: hardening makes it fail closed

  validate(service: Service, { request, oldObject }) {
    const present = oldObject?.spec?.externalIPs ?? [];
    if ((service.spec?.externalIPs ?? []).every((ip) => present.includes(ip))) return;

    return { refuse: forbidden(request, "Use of external IPs is denied by admission control") };
  },

  suggest({ spec }: Service, { oldObject }) {
    const present = oldObject?.spec?.externalIPs ?? [];
    const kept = (spec?.externalIPs ?? []).filter((ip) => present.includes(ip));
    if (spec && kept.length > 0) spec.externalIPs = kept;
    else delete spec?.externalIPs;
  },
});
