import type { Ingress } from "postern/kubernetes/networking/v1";
import { list } from "postern/needs";
import { findDefaultClass } from "postern/objects/default-class";
import { rule } from "postern/rule";

/** The annotation that was used before the field ingressClassName existed. An Ingress with any value has a class. */
const olderAnnotation = "kubernetes.io/ingress.class";

export default rule({
  summary: "Sets the default class in an Ingress that names no class.",
  order: 29,
  upstreamPlugin: { plugin: "DefaultIngressClass" },
  match: [{ apiGroups: ["networking.k8s.io"], apiVersions: ["v1"], resources: ["ingresses"], operations: ["CREATE"] }],
  matchConditions: {
    "names-no-class": `!object.?spec.?ingressClassName.hasValue() &&
      !object.?metadata.?annotations[?"${olderAnnotation}"].hasValue()`,
  },
  // IngressClasses are read without the cache: no controller corrects the class of an Ingress later.
  needs: { classes: list("ingressclasses", { maxAge: 0 }) },

  async mutate(ingress: Ingress, { classes }) {
    if (ingress.spec?.ingressClassName !== undefined || ingress.metadata?.annotations?.[olderAnnotation] !== undefined)
      return;

    const name = findDefaultClass(await classes(), ["ingressclass.kubernetes.io/is-default-class"]);
    if (name) ingress.spec = { ...ingress.spec, ingressClassName: name };
  },
});
