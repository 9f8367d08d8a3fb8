import type { Pod, ServiceAccount } from "postern/kubernetes/core/v1";
import { get, type ObjectPlace } from "postern/needs";
import { isMirrorPod } from "postern/objects/pod";
import { listSecrets } from "postern/objects/secret";
import { forbidden } from "postern/refusals";
import type { AdmissionRequest, Status } from "postern/review";
import { type RequestMatch, rule } from "postern/rule";
import { describeUnlistedSecret, findUnlistedEphemeralSecret } from "./secrets.ts";
import { mountServiceAccountToken } from "./token.ts";

const pods: RequestMatch = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] };

export default rule({
  summary: "Sets the service account of a pod and mounts its token, and restricts the pod to the account's secrets.",
  order: 7,
  upstreamPlugin: {
    plugin: "ServiceAccount",
    worthwhile:
      "The API server's plugin ServiceAccount does the same by default, but restricts only accounts with an annotation to their secrets. The rule is for clusters that need the setting limitSecretReferences, which restricts all accounts.",
  },
  match: {
    mutate: [pods],
    validate: [pods, { ...pods, resources: ["pods/ephemeralcontainers"], operations: ["UPDATE"] }],
  },
  guards: true, // a security rule: hardening makes it fail closed
  settings: { limitSecretReferences: false },
  needs: {
    // The ServiceAccount is read without the cache, because a pod keeps the token and pull secrets that it gets.
    current: get("serviceaccounts", { maxAge: 0 }),
    // The account `default`: the rule waits up to 1.5 s for it, because a controller creates it in a new namespace.
    usual: get("serviceaccounts", { maxAge: 0, patience: 1.5 }),
    recent: get("serviceaccounts"),
  },

  async mutate(pod: Pod, context) {
    const { spec } = pod;
    if (!spec) return;
    // A mirror pod is checked, but not changed: the kubelet deletes a mirror pod that differs from its own.
    if (isMirrorPod(pod)) return checkMirrorPod(pod, context.request);

    spec.serviceAccountName ||= spec.serviceAccount || "default";
    const { current, usual } = context;
    const accountOrRefusal = await findAccount(pod, context, spec.serviceAccountName === "default" ? usual : current);
    if ("refuse" in accountOrRefusal) return accountOrRefusal;

    const { account } = accountOrRefusal;
    if (spec.automountServiceAccountToken ?? account.automountServiceAccountToken ?? true)
      mountServiceAccountToken(pod, context.request.uid);
    const pullSecrets = account.imagePullSecrets ?? [];
    if (!spec.imagePullSecrets?.length && pullSecrets.length > 0)
      spec.imagePullSecrets = pullSecrets.map(({ name }) => ({ name }));
    return checkSecrets(pod, account, context);
  },

  async validate(pod: Pod, context) {
    if (!context.request.subResource && isMirrorPod(pod)) return checkMirrorPod(pod, context.request);
    const accountOrRefusal = await findAccount(pod, context, context.recent);
    return "refuse" in accountOrRefusal ? accountOrRefusal : checkSecrets(pod, accountOrRefusal.account, context);
  },

  async suggest(pod: Pod, { request, current }) {
    // A mirror pod gets no suggestion, because only kubelets write such pods.
    if (isMirrorPod(pod)) return;
    const name = pod.spec?.serviceAccountName || pod.spec?.serviceAccount || "default";
    const describedAccount = `ServiceAccount ${JSON.stringify(name)}`;
    const account = await current({ name, namespace: request.namespace });
    if (!account) return `create ${describedAccount} in namespace ${JSON.stringify(request.namespace)} first`;
    const offence = (request.subResource ? findUnlistedEphemeralSecret : describeUnlistedSecret)(pod, account);
    const list = offence?.startsWith("imagePullSecrets") ? "imagePullSecrets" : "secrets";
    if (offence) return `add that secret to the ${list} of ${describedAccount}, or use one that is listed there`;
  },
});

interface AccountContext {
  request: AdmissionRequest;
  settings: { limitSecretReferences: boolean };
}

type Accounts = (place: ObjectPlace) => Promise<ServiceAccount | undefined>;

const refuseRequest = (request: AdmissionRequest, text: string) => ({ refuse: forbidden(request, text) });

/** Reads the service account of a pod; returns a refusal if the pod names none, or the account doesn't exist. */
const findAccount = async (
  { metadata, spec }: Pod,
  { request }: AccountContext,
  read: Accounts,
): Promise<{ account: ServiceAccount } | { refuse: Status }> => {
  const { namespace = "" } = request;
  const name = spec?.serviceAccountName;
  const account = name ? await read({ name, namespace }) : undefined;
  if (account) return { account };
  return refuseRequest(
    request,
    name
      ? `error looking up service account ${namespace}/${name}: serviceaccount "${name}" not found`
      : `no service account specified for pod ${namespace}/${metadata?.name ?? ""}`,
  );
};

/** Checks a mirror pod, which represents a static pod of the kubelet; it must not have an account or a secret. */
const checkMirrorPod = (pod: Pod, request: AdmissionRequest) => {
  if (pod.spec?.serviceAccountName) return refuseRequest(request, "a mirror pod may not reference service accounts");
  if (listSecrets(pod).length > 0) return refuseRequest(request, "a mirror pod may not reference secrets");
  const sources = (pod.spec?.volumes ?? []).flatMap(({ projected }) => projected?.sources ?? []);
  if (sources.some(({ serviceAccountToken }) => serviceAccountToken))
    return refuseRequest(request, "a mirror pod may not use ServiceAccountToken volume projections");
};

/** Refuses a pod with secrets which its account lacks, if the settings or the account's annotation demand this. */
const checkSecrets = (pod: Pod, account: ServiceAccount, { request, settings }: AccountContext) => {
  const enforcement = account.metadata?.annotations?.["kubernetes.io/enforce-mountable-secrets"] ?? "";
  // Go's strconv.ParseBool accepts these texts as true.
  if (!settings.limitSecretReferences && !/^(1|t|T|true|TRUE|True)$/.test(enforcement)) return;
  // As in upstream, the message about ephemeral containers doesn't begin with the object's name.
  if (request.subResource) return findUnlistedEphemeralSecret(pod, account);
  const offence = describeUnlistedSecret(pod, account);
  if (offence) return refuseRequest(request, offence);
};
