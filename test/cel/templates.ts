/** Splits a text at line breaks and at two or more spaces. */
const list = ({ raw }: TemplateStringsArray): readonly string[] =>
  raw
    .join("")
    .replaceAll("\\`", "`")
    .trim()
    .split(/ {2,}|\n */);

/**
 * Templates of expressions by the type of their value. In a template, `$int` is an expression of that type, `$var(T)`
 * declares a variable that the rest of the template may use, and `$text(regex)` is one of the texts below. A capital
 * letter is a type that is chosen for each use: `K` a type of keys of maps, `C` a type whose values can be compared,
 * `S` a type whose values can be added, `N` a type of numbers, and any other letter any type.
 */
export const templates: Readonly<Record<string, readonly string[]>> = {
  bool: list`
    $bool && $bool  $bool || $bool  !$bool  ($bool && $bool) || $bool  $dyn && $bool  $bool || $dyn  $T == $T
    $T != $T  $C < $C  $C <= $C  $C > $C  $C >= $C  $N < $M  $N >= $M  dyn($T) == $U  dyn($N) == $M  dyn($T) < dyn($U)
    $T in $list(T)  $K in $map(K,V)  $dyn in $list(T)  $dyn in $dyn  $T in [$T, $T]  has($path)  has($map(string,V).a)
    has($dyn.a)  has(object.$key.$key)  has(object.?$key)  has(request.$text(requestField))
    has(namespaceObject.metadata.$text(metadataField))  bool($text(bool))  bool($string)  $string.contains($string)
    $string.startsWith($string)  $string.endsWith($string)  $string.matches($text(pattern))
    matches($string, $text(pattern))  $string.matches($string)  $dyn.contains($string)  $list(T).all($var(T), $bool)
    $list(T).exists($var(T), $bool)  $list(T).exists_one($var(T), $bool)  $list(T).existsOne($var(T), $bool)
    $map(K,V).all($var(K), $bool)  $map(K,V).exists($var(K), $bool)  $map(K,V).exists_one($var(K), $bool)
    $dyn.all($var(dyn), $bool)  $dyn.exists($var(dyn), $bool)  $list(T).all($var(int), $var(T), $bool)
    $list(T).exists($var(int), $var(T), $bool)  $list(T).existsOne($var(int), $var(T), $bool)
    $list(T).exists_one($var(int), $var(T), $bool)  $map(K,V).all($var(K), $var(V), $bool)
    $map(K,V).exists($var(K), $var(V), $bool)  $map(K,V).existsOne($var(K), $var(V), $bool)
    $dyn.all($var(dyn), $var(dyn), $bool)  $list(T).includes($T)  $list(T).includes($U)  $dyn.includes($T)
    $T.includes($T)  [1].all(object, object == .object.$key)  has($dyn.\`$key\`)  $list(C).isSorted()  $dyn.isSorted()  sets.contains($list(T), $list(T))
    sets.equivalent($list(T), $list(T))  sets.intersects($list(T), $list(T))  sets.contains($list(dyn), $list(T))
    sets.intersects($dyn, $dyn)  $optional(T).hasValue()  $optional(T) == $optional(T)  isQuantity($text(quantity))
    isQuantity($string)  $quantity.isInteger()  $quantity.isGreaterThan($quantity)  $quantity.isLessThan($quantity)
    $quantity == $quantity  isURL($text(url))  $url == $url  isIP($text(ip))  ip.isCanonical($text(ip))
    $ip.isUnspecified()  $ip.isLoopback()  $ip.isLinkLocalMulticast()  $ip.isLinkLocalUnicast()  $ip.isGlobalUnicast()
    $ip == $ip  isCIDR($text(cidr))  $cidr.containsIP($text(ip))  $cidr.containsIP($ip)
    $cidr.containsCIDR($text(cidr))  $cidr.containsCIDR($cidr)  $cidr == $cidr  isSemver($text(semver))
    isSemver($text(semver), $bool)  $semver.isLessThan($semver)  $semver.isGreaterThan($semver)  $semver == $semver
    $decision.allowed()  $decision.errored()  request.dryRun
    lists.range($text(size)).all($var(int), lists.range($text(size)).all($var(int), $bool))
    lists.range($text(size)).all($var(int), lists.range($text(size)).exists($var(int), $bool))
    lists.range($text(size)).exists_one($var(int), lists.range($text(size)).existsOne($var(int), $bool))
    lists.range($text(size)).all($var(int), $var(int), lists.range($text(size)).map($var(int), $T).size() > 0)
    lists.range($text(size)).filter($var(int), lists.range($text(size)).transformList($var(int), $var(int), $T).size() > 0) != []
    lists.range($text(size)).transformMap($var(int), $var(int), $T) == lists.range($text(size)).transformMap($var(int), $var(int), $T)
    type($T) == type($U)  type($T) == $type  $type == $type  $struct == $struct  has($struct.a)
    has($patch.$text(patchField))  $patch == $patch  null == $dyn  $dyn == null  $double == 0.0/0.0
    $format == $format
  `,
  int: list`
    $int + $int  $int - $int  $int * $int  $int / $int  $int % $int  -$int  -($int)  $int + $dyn  $dyn % $int
    size($string)  $string.size()  size($bytes)  size($list(T))  $list(T).size()  size($map(K,V))  $map(K,V).size()
    size($dyn)  $dyn.size()  int($int)  int($uint)  int($double)  int($text(int))  int($string)  int($timestamp)
    int($duration)  int($dyn)  $timestamp.getFullYear()  $timestamp.getMonth()  $timestamp.getDate()
    $timestamp.getDayOfMonth()  $timestamp.getDayOfWeek()  $timestamp.getDayOfYear()  $timestamp.getHours()
    $timestamp.getMinutes()  $timestamp.getSeconds()  $timestamp.getMilliseconds()
    $timestamp.getFullYear($text(zone))  $timestamp.getMonth($text(zone))  $timestamp.getDate($text(zone))
    $timestamp.getDayOfMonth($text(zone))  $timestamp.getDayOfWeek($text(zone))  $timestamp.getDayOfYear($text(zone))
    $timestamp.getHours($text(zone))  $timestamp.getMinutes($text(zone))  $timestamp.getSeconds($text(zone))
    $timestamp.getMilliseconds($text(zone))  $duration.getHours()  $duration.getMinutes()  $duration.getSeconds()
    $duration.getMilliseconds()  $string.indexOf($string)  $string.indexOf($string, $index)
    $string.lastIndexOf($string)  $string.lastIndexOf($string, $index)  $list(T).indexOf($T)  $list(T).lastIndexOf($T)
    $dyn.indexOf($T)  $quantity.asInteger()  $quantity.sign()  $quantity.compareTo($quantity)  $ip.family()
    $cidr.prefixLength()  $semver.major()  $semver.minor()  $semver.patch()  $semver.compareTo($semver)
  `,
  uint: list`
    $uint + $uint  $uint - $uint  $uint * $uint  $uint / $uint  $uint % $uint  uint($int)  uint($uint)  uint($double)
    uint($text(int))  uint($string)  uint($dyn)
  `,
  double: list`
    $double + $double  $double - $double  $double * $double  $double / $double  -$double  $double + $dyn  double($int)
    double($uint)  double($double)  double($text(double))  double($string)  double($dyn)
    $quantity.asApproximateFloat()
  `,
  string: list`
    $string + $string  $string + $dyn  string($N)  string($bool)  string($bytes)  string($timestamp)
    string($duration)  string($string)  string($dyn)  string($ip)  string($cidr)  string($quantity)
    $string.charAt($index)  $string.lowerAscii()  $string.upperAscii()  $string.replace($string, $string)
    $string.replace($string, $string, $index)  $string.substring($index)  $string.substring($index, $index)
    $string.trim()  $list(string).join()  $list(string).join($string)  $dyn.join($string)  strings.quote($string)
    $text(format).format([$T])  $text(format).format([$T, $T])  $text(format).format([$T, $U])
    $text(format).format([$T, $U, $V])  $text(format).format($list(T))  $text(numberFormat).format([$N])
    $text(numberFormat).format([$dyn])  $string.format($list(T))  $string.find($text(pattern))  $string.find($string)
    $url.getScheme()  $url.getHost()  $url.getHostname()  $url.getPort()  $url.getEscapedPath()  $decision.reason()
    $decision.error()  jsonpatch.escapeKey($string)  request.$text(requestField)
    request.$text(requestKind).$text(kindField)  request.userInfo.$text(userField)
    namespaceObject.metadata.$text(metadataField)  $patch.$text(patchField)  $dyn.charAt($index)  $dyn.lowerAscii()
    $dyn.substring($index)
  `,
  bytes: list`bytes($string)  bytes($bytes)  $bytes + $bytes  bytes($dyn)`,
  duration: list`
    duration($text(duration))  duration($string)  duration($duration)  $duration + $duration  $duration - $duration
    $timestamp - $timestamp  -$duration
  `,
  timestamp: list`
    timestamp($text(timestamp))  timestamp($string)  timestamp($timestamp)  timestamp($int)  $timestamp + $duration
    $duration + $timestamp  $timestamp - $duration  namespaceObject.metadata.creationTimestamp
  `,
  null: list`null`,
  type: list`
    type($T)  type($dyn)  type($type)  int  string  map  list  null_type  google.protobuf.Timestamp  optional_type
    type
  `,
  dyn: list`
    dyn($T)  object.$key  object.$key.$key  object[$string]  object.$key[$int]  $dyn[$T]  $dyn.$key  $path
    oldObject.$key  params.$key  request.options.$key  $dyn.?$key.orValue($dyn)  $dyn.orValue($dyn)  object.metadata.labels.\`app.kubernetes.io/name\`
    $dyn.?\`$key\`.orValue($dyn)  $dyn.\`a.b/c-d e\`  variables.$text(variable)  $struct.a
    $struct.b  $patch.value  [$T, dyn($U)]  [dyn($T), $U, $V]  {$K: dyn($T)}  $dyn + $dyn  $dyn - $dyn  $dyn * $dyn
    $dyn / $dyn  -$dyn
  `,
  "list(T)": list`
    [$T]  [$T, $T]  [$T, $T, $T]  [$T, ?$optional(T)]  [?$optional(T), ?$optional(T)]  $list(T) + $list(T)
    $list(T) + $dyn  $list(U).map($var(U), $T)  $list(U).map($var(U), $bool, $T)  $map(K,V).map($var(K), $T)
    $dyn.map($var(dyn), $T)  $list(T).filter($var(T), $bool)  $list(U).transformList($var(int), $var(U), $T)
    $list(U).transformList($var(int), $var(U), $bool, $T)  $map(K,V).transformList($var(K), $var(V), $T)
    $map(K,V).transformList($var(K), $var(V), $bool, $T)  $list(T).slice($index, $index)  $list(list(T)).flatten()
    $list(T).flatten($index)  $list(T).distinct()  $list(T).reverse()  $list(T).sort()  $list(T).sortBy($var(T), $C)
    optional.unwrap($list(optional(T)))  $list(optional(T)).unwrapOpt()
  `,
  "list(K)": list`$map(K,V).filter($var(K), $bool)`,
  "list(dyn)": list`
    []  $dyn.sort()  $dyn.distinct()  $dyn.reverse()  $dyn.flatten()  $dyn.slice($index, $index)
    $dyn.sortBy($var(dyn), $var)
  `,
  "list(C)": list`$list(C).sort()  $list(C).sort().reverse()`,
  // Upstream has no limit for ranges, so with a large range the program in Go would run out of memory.
  "list(int)": list`lists.range($index)`,
  "list(string)": list`
    $string.split($string)  $string.split($string, $index)  $string.findAll($text(pattern))
    $string.findAll($text(pattern), $index)  request.userInfo.groups  namespaceObject.spec.finalizers
    $dyn.split($string)
  `,
  "list(JSONPatch)": list`[$patch]  [$patch, $patch]`,
  "map(K,V)": list`
    {$K: $V}  {$K: $V, $K: $V}  {?$K: $optional(V)}  {$K: $V, ?$K: $optional(V)}
    $map(K,T).transformMap($var(K), $var(T), $V)  $map(K,T).transformMap($var(K), $var(T), $bool, $V)
    $list(T).transformMapEntry($var(int), $var(T), {$K: $V})
    $list(T).transformMapEntry($var(int), $var(T), $bool, {$K: $V})
    $map(A,T).transformMapEntry($var(A), $var(T), {$K: $V})
  `,
  "map(int,V)": list`
    $list(T).transformMap($var(int), $var(T), $V)  $list(T).transformMap($var(int), $var(T), $bool, $V)
  `,
  "map(string,string)": list`namespaceObject.metadata.labels  namespaceObject.metadata.annotations`,
  "map(string,list(string))": list`$url.getQuery()  request.userInfo.extra`,
  "map(dyn,dyn)": list`{}`,
  "optional(T)": list`
    optional.of($T)  optional.ofNonZeroValue($T)  optional.none()  $map(string,T).?a  $map(K,T)[?$K]
    $list(T)[?$index]  $list(T).first()  $list(T).last()  $optional(T).or($optional(T))
    $optional(U).optMap($var(U), $T)  $optional(U).optFlatMap($var(U), $optional(T))
    $bool ? $optional(T) : optional.none()
  `,
  "optional(dyn)": list`
    object.?$key  object.?$key.?$key  object[?$string]  object.$key[?$index]  $dyn.?$key  $dyn[?$dyn]
    $optional(dyn).$key  $optional(dyn)[$dyn]  $optional(dyn).?$key  $struct.?a  $dyn.first()
  `,
  "optional(list(string))": list`$format.validate($string)  $format.validate($text(name))`,
  "optional(format)": list`format.named($text(formatName))  format.named($string)`,
  format: list`
    format.dns1123Label()  format.dns1123Subdomain()  format.dns1035Label()  format.qualifiedName()
    format.dns1123LabelPrefix()  format.dns1123SubdomainPrefix()  format.dns1035LabelPrefix()  format.labelValue()
    format.uri()  format.uuid()  format.byte()  format.date()  format.datetime()  $optional(format).value()
  `,
  quantity: list`
    quantity($text(quantity))  quantity($string)  $quantity.add($quantity)  $quantity.add($int)
    $quantity.sub($quantity)  $quantity.sub($int)
  `,
  url: list`url($text(url))  url($string)`,
  ip: list`ip($text(ip))  $cidr.ip()  ip($string)`,
  cidr: list`cidr($text(cidr))  $cidr.masked()  cidr($string)`,
  semver: list`semver($text(semver))  semver($text(semver), $bool)  semver($string)`,
  authorizer: list`authorizer  authorizer.serviceAccount($text(name), $text(name))`,
  pathCheck: list`$authorizer.path($text(path))  $authorizer.path($string)`,
  groupCheck: list`$authorizer.group($text(group))`,
  resourceCheck: list`
    $groupCheck.resource($text(name))  $resourceCheck.subresource($text(name))  $resourceCheck.namespace($text(name))
    $resourceCheck.name($string)  $resourceCheck.fieldSelector($text(selector))
    $resourceCheck.labelSelector($text(selector))  authorizer.requestResource
  `,
  decision: list`$resourceCheck.check($text(verb))  $pathCheck.check($text(verb))`,
  struct: list`
    Object{}  Object{a: $T}  Object{a: $T, b: $U}  Object{a: Object.a{b: $T}}  Object{?a: $optional(T)}
    Object{a: [Object.a{b: $T}, Object.a{?b: $optional(U)}]}  Object.spec{a: $T}
    Object{metadata: Object.metadata{labels: $map(string,string)}}
  `,
  patch: list`
    JSONPatch{}  JSONPatch{op: $string, path: $string}  JSONPatch{op: 'add', path: '/a', value: $T}
    JSONPatch{op: 'move', from: $string, path: $string}
    JSONPatch{op: 'test', path: '/' + jsonpatch.escapeKey($string), value: $dyn}
    JSONPatch{?op: $optional(string), ?value: $optional(T)}  JSONPatch{op: $dyn}  JSONPatch{$key: $T}
  `,
};

/**
 * Templates for values of any type, `T`. `K` is a type of keys, and `N` is int, uint or double. An index must be an
 * int: `$index` is one, and `$N` often isn't.
 */
export const anyTemplates: readonly string[] = list`
  $bool ? $T : $T  $dyn ? $T : $T  ($T)  [$T][0]  $list(T)[$index]  $list(T)[$N]  {'a': $T}.a  {'a': $T}['a']
  $map(K,T)[$K]  $optional(T).value()  $optional(T).orValue($T)  $list(T).first().orValue($T)
  $optional(optional(T)).value().orValue($T)
`;
/** Templates for types whose values can be compared, `C`, or added, `S`. */
export const orderedTemplates: readonly string[] = list`$list(C).min()  $list(C).max()`;
export const summableTemplates: readonly string[] = list`$list(S).sum()`;

/**
 * Texts as literals of CEL, by the name of what they are used for. The texts after a "|" are invalid for it or unusual.
 */
export const texts: Readonly<Record<string, readonly string[]>> = {
  bool: list`'true'  'false'  'True'  'TRUE'  't'  'f'  '1'  '0'  |  'yes'  ''  'tRue'`,
  int: list`
    '0'  '-1'  '+1'  '42'  '9223372036854775807'  '-9223372036854775808'  '007'  '-0'  |  '9223372036854775808'  '1.5'
    ' 1'  '0x1F'  '1_000'  '18446744073709551615'  '18446744073709551616'  '1e3'  ''
  `,
  double: list`
    '0'  '1.5'  '-0.0'  'NaN'  'Infinity'  '-inf'  '+Inf'  '.5'  '5.'  '1e3'  '9007199254740993'  '1e-400'  |  'nan'
    '1e400'  '1_0'  '0x1p-2'  'abc'  ' 1'  'infinit'  '1,5'
  `,
  duration: list`
    '1s'  '1h30m'  '-1.5h'  '100ms'  '1us'  '1µs'  '1ns'  '0'  '+5m'  '1h1m1s1ms1us1ns'  '9223372036s'  '.5s'  '1.s'
    '-0.000000001s'  '24h'  |  '315576000000s'  '-315576000001s'  '1d'  '1'  ''  's'  '1s '  '1.23456789012s'
    '2540400h'  '2562048h'
  `,
  timestamp: list`
    '2020-02-29T12:34:56Z'  '2021-06-01T00:00:00+05:30'  '2021-06-01T23:59:59.999-08:00'  '1970-01-01T00:00:00Z'
    '1969-12-31T23:59:59.5Z'  '0001-01-01T00:00:00Z'  '9999-12-31T23:59:59.999999999Z'  '2024-03-10T07:30:00Z'
    '2024-12-31T23:30:00.123456789Z'  |  '2021-06-01T00:00:00+23:59'  '2016-12-31T23:59:60Z'  '2021-02-30T00:00:00Z'
    '2021-06-01T00:00:00'  '2021-06-01 00:00:00Z'  '2021-06-01t00:00:00z'  '2021-6-1T00:00:00Z'
    '2021-06-01T24:00:00Z'  '2021-06-01T00:00:00+24:00'  '2021-06-01T00:00:00,5Z'  '0000-01-01T00:00:00Z'
    '10000-01-01T00:00:00Z'  'x'  ''  '2021-06-01T00:00Z'  '2021-06-01'
  `,
  zone: list`
    'UTC'  'America/New_York'  'Europe/Berlin'  'Asia/Kolkata'  'Australia/Lord_Howe'  'America/St_Johns'  '+05:30'
    '-08:00'  '02:00'  '-00:30'  '23:59'  ''  'EST'  'Etc/GMT+5'  |  '99:99'  'bad/zone'  'Local'  'utc'  '+5'
    '1:2:3'  ':'  'a:b'
  `,
  pattern: list`
    '^a.*b$'  '[a-z]+'  '(?i)ABC'  'a|b'  '(a)(b)?'  r'\d+'  r'\pL+'  '[[:alpha:]]+'  'a{2,3}'  'x*'  ''  '^$'
    r'\bfoo\b'  '(?P<n>a)'  '[^,]*'  '.'  r'\x{1F600}'  'é'  '😀'  '(?s).+'  '(?m)^b'  '(a+)+$'  r'\w+@\w+'  '(?i)ß|ſ'
    r'[\d\-x]'  'a??'  '.{0,4}'  |  'a(?=b)'  '('  r'\1'  '(?<n>a)'  'a{1001}'  '[z-a]'  'a**'  r'\z'  r'\C'  '[a'
    '+'
  `,
  quantity: list`
    '1'  '0'  '1.5Gi'  '100m'  '-1'  '1Ki'  '1k'  '1e3'  '1E3'  '1E'  '9223372036854775807'  '9223372036854775808'
    '-9223372036854775808'  '0.000000001'  '0.0000000001'  '1n'  '1u'  '5e-3'  '10Ei'  '100E'  '+1'  '.5'  '1.'  '1.0'
    '1024Mi'  '12345678901234567890123'  '1e-20'  '9007199254740993'  '123.456'  '-0'  '1e18'  '1e19'  '1e200'  |
    '1 '  ''  '1kb'  'abc'  '1i'  '1..2'  '1e'
  `,
  url: list`
    'https://example.com/a/b?x=1&y=2#z'  'http://user:pw@host:8080/p%20q'  'https://[::1]:443/'  '/abs/path?q'
    'mailto:a@b'  '//host/p'  'HTTP://Example.COM/Ä?ü=ö&x=%C3%BC+1&x&=2'  'https://ex.com?a=1;b=2&c=3'
    'http://[fe80::1%25en0]/'  'http://1.2.3.4:80'  'a:b:c'  'https://h/a//b/../c'  '*'  'https://h:/'
    'https://h/#a?b'  'https://h/😀'  'https://h/?a=%zz&b=1'  'http://h%41/'  'https://h/a;b/c=d'  |  '../x'  ''
    'https://example.com:port/'  'http://a b/'  'http://host/%zz'  ':x'  'http://h\u0001/'  'http://[::1'  'foo'
    '1http://x/'  'http://h/ x'  'http://[::1]x/'  'http://a:b:c/'  'http://u:p:q@h/'
  `,
  ip: list`
    '127.0.0.1'  '10.0.0.1'  '192.168.1.255'  '0.0.0.0'  '255.255.255.255'  '224.0.0.1'  '169.254.1.1'  '8.8.8.8'
    '::'  '::1'  'fe80::1'  'ff02::1'  '2001:db8::ff'  '2001:DB8::FF'  '2001:0db8:0:0:0:0:0:1'  '::1.2.3.4'
    '1:2:3:4:5:6:7:8'  '1:2:3:4:5:6:7::'  'fd00::c'  |  '::ffff:1.2.3.4'  'fe80::1%eth0'  '01.2.3.4'  '1.2.3'
    '1.2.3.256'  '1.2.3.4.5'  ''  'x'  '12345::'  ':::'  '1::2::3'  '[::1]'  ' 1.2.3.4'  '1:2'  '1.2.3.a'  '1..3.4'
    '::g'  '1:2:3:4:5:6:7:8:9'
  `,
  cidr: list`
    '10.0.0.0/8'  '192.168.0.1/16'  '0.0.0.0/0'  '1.2.3.4/32'  '2001:db8::/32'  '::/0'  '::1/128'  '2001:db8::1/64'
    '224.0.0.0/4'  '127.0.0.0/8'  |  'fe80::1%eth0/64'  '10.0.0.0/33'  '10.0.0.0/08'  '10.0.0.0/+8'  '10.0.0.0'  '/8'
    ''  '::ffff:10.0.0.0/104'  '10.0.0/8'  '::/129'  '10.0.0.0/-1'  '10.0.0.0/8/8'  '10.0.0.0/'  '10.0.0.0/x'
  `,
  semver: list`
    '1.2.3'  '1.2.3-alpha.1+build'  '1.2.3-alpha.2'  '1.2.3-alpha.beta'  '0.0.0'  '18446744073709551615.0.0'  '2.0.0'
    '1.10.0'  '1.2.3-1'  |  'v1.2.3'  '1.2'  '1'  '01.2.3'  'v1.2'  '1.2.3-'  '1.2.3-01'  '1.2.3+'  '1.2.3.4'
    '18446744073709551616.0.0'  '9223372036854775808.1.1'  ''  'v'  'V1.0.0'  '1.x.3'  '1.2.3-α'  '1.02.3'  'v01.02'
    '1.2.3-a_b'  '1.-2.3'  '1.2-alpha'  ' 1.2.3'  '1.2.3+a+b'  '1.2.3-a..b'
  `,
  format: list`
    '%s'  '%s %s'  '%s%%%s'  '%s %s %s'  'x😀%sé'  '%%'  'plain'  ''  |  '%d'  '%f'  '%.3f'  '%.0f'  '%e'  '%.2e'
    '%b'  '%x'  '%X'  '%o'  '%q'  '%'  '%5d'  '%.20f'  '%.f'  '%s %d'  '%d %x %s'  '%.1001f'  '%-s'  '%.3s'  '%.'
  `,
  numberFormat: list`'%d'  '%f'  '%.0f'  '%.1f'  '%.2f'  '%.10f'  '%e'  '%.0e'  '%.3e'  '%b'  '%x'  '%X'  '%o'  '%s'`,
  name: list`
    'a'  'abc-def'  'Abc'  'a.b'  '-a'  'a-'  ''  'a_b'  'example.com/name'  'Example.com/x'  '1abc'  '1-2'  'default'
    'pods'  'a/b/c'  '0123456789012345678901234567890123456789012345678901234567890123'  'é'  'a b'  '2020-01-02'
    '2020-13-02'  '2020-01-02T03:04:05Z'  '2020-01-02 03:04:05'  'YWJj'  'YWI='  'YW=='  'Y'
    '123e4567-e89b-12d3-a456-426614174000'  '123E4567E89B12D3A456426614174000'  '123e4567-e89b'
    'https://example.com/'  'example'  'a..b'  '_a'  'A1'  '1'  '-'
  `,
  formatName: list`
    'dns1123Label'  'dns1123Subdomain'  'dns1035Label'  'qualifiedName'  'dns1123LabelPrefix'
    'dns1123SubdomainPrefix'  'dns1035LabelPrefix'  'labelValue'  'uri'  'uuid'  'byte'  'date'  'datetime'  'unknown'
    ''  'toString'
  `,
  size: list`5  10  20  40  100  400`,
  path: list`'/healthz'  '/'  ''  ' '  '/metrics'`,
  group: list`''  'apps'  'example.com'`,
  verb: list`'get'  'list'  'create'  'use'  ''  '*'`,
  selector: list`
    'a=b'  'a==b,c!=d'  'a in (x,y)'  '!a'  ''  'a=b,'  'spec.nodeName=x'  '='  'a'  'a notin (b)'  'a in x'  '-=,'
  `,
  requestField: list`name  namespace  operation  subResource  requestSubResource  dryRun  options  kind  uid  userInfo`,
  requestKind: list`kind  requestKind  resource  requestResource`,
  kindField: list`group  version  kind  resource`,
  userField: list`username  uid  groups  extra`,
  metadataField: list`
    name  labels  annotations  generateName  namespace  UID  uid  generation  finalizers  resourceVersion
    creationTimestamp  deletionTimestamp  ownerReferences
  `,
  patchField: list`op  path  from  value  nope`,
  variable: list`first  second  nope`,
};
