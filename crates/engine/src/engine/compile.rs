//! From needs to requests.

use crate::carrier::setup;
use crate::carrier::setup::{Requirements, SecurityParameters, Setups};
use crate::event::{EstablishmentError, Reason};
use crate::isolate::Isolate;
use crate::policy::Asked;
use crate::preferences::wants;
use crate::request::{Compiled, Request, RequestOptions, attempt_delay, eligible, nanos};
use crate::{Engine, Stack};
use core::hash::{BuildHasher, Hash, Hasher};
use neater_base::net::Net;
use neater_property::{Role, SecurityNeed, SelectionProperty as P, TransportProperties};
use std::sync::Arc;

impl<N: Net> Engine<N> {
    /// Checks and compiles needs. Costs microseconds; do it once and use the result for every
    /// connection of its kind.
    ///
    /// # Errors
    /// [`Reason::InvalidConfiguration`]: the properties contradict each other, and which.
    /// [`Reason::NoCandidates`]: no stack can serve, with the properties that rule out each.
    /// Nothing has been sent in either case.
    pub fn compile(
        &mut self,
        properties: &TransportProperties,
        security: &SecurityParameters,
        role: Role,
        options: &RequestOptions,
    ) -> Result<Request, EstablishmentError> {
        let invalid = |m: String| EstablishmentError::new(Reason::InvalidConfiguration, m);
        let needs = properties.compile(role).map_err(|e| invalid(e.to_string()))?;
        let need = setup::security_need(security);
        let shape = neater_policy::Shape { bytes_needed: options.bytes, framer: options.framer.frames() };
        let (eligible, unfit) = setup::of_version(eligible(&needs, &options.stacks), security);
        let mut policy = self.rank(&needs, need, shape, eligible, unfit)?;
        let mut ranked: Vec<Stack> = policy.ranked.iter().filter_map(|r| Stack::from_number(r.stack)).collect();
        if options.in_order {
            let place = |number: u16| options.stacks.iter().position(|s| *s as u16 == number);
            policy.ranked.sort_by_key(|r| place(r.stack));
            ranked.sort_by_key(|s| place(*s as u16));
        }
        let connection = &properties.connection;
        let rates = (connection.max_send_rate, connection.max_recv_rate);
        let of_paths = |set: neater_property::PropertySet| set.contains(P::UseTemporaryLocalAddress);
        let demands_path = !needs.pvd.is_empty() || of_paths(needs.require) || of_paths(needs.prohibit);

        let isolation = options.isolation;
        let direct = self.cx.config.fast_path
            // Regardless of the cached outcome.
            && ranked.contains(&Stack::PLAIN)
            && !options.observe
            && !options.framer.frames()
            && properties.interfaces().is_empty()
            && rates == (None, None)
            && !demands_path;
        let sessions = (security.max_cached_sessions, security.cached_session_lifetime);
        let isolate = (connection.isolate_session && isolation == 0 && role != Role::Listen)
            .then(|| Box::new(Isolate { sessions, direct }));
        let requirements = Requirements { properties, security, role, isolation };
        let (setups, unfit) =
            Setups::compile(&self.cx, &requirements, &mut ranked).map_err(|e| invalid(e.to_string()))?;
        policy.ranked.retain(|r| !unfit.iter().any(|e| e.stack == r.stack));
        policy.excluded.extend(unfit);
        policy.excluded.sort_by_key(|e| e.stack);
        let mut h = foldhash::fast::FixedState::with_seed(3).build_hasher();
        (policy.fingerprint, security.fingerprint(), options.framer.frames(), options.bytes).hash(&mut h);
        security.alpn().hash(&mut h);
        // An outcome of one choice of stacks is no evidence where that stack is not eligible.
        ranked.hash(&mut h);
        Ok(Request(Arc::new(Compiled {
            asked: Asked::new(&ranked, &options.policy, h.finish()),
            fingerprint: h.finish(),
            stacks: ranked,
            properties: properties.clone(),
            framer: options.framer.clone(),
            server_name: security.server_name().map(str::to_owned),
            setups,
            isolation,
            attempt_delay: attempt_delay(properties, options.timeout),
            most_patience: options.timeout.map_or(u64::MAX, nanos),
            services: security.alpn().iter().any(|a| is_http(a)) && need != SecurityNeed::Disabled,
            policy,
            observe: options.observe,
            soft_errors: wants(properties, P::SoftErrorNotify, role),
            direct: direct && isolate.is_none(),
            timeout: options.timeout,
            idle_timeout: connection.timeout,
            alpn: security.alpn().to_vec(),
            may_send: properties.direction() != neater_property::Direction::UnidirectionalReceive,
            may_receive: properties.direction() != neater_property::Direction::UnidirectionalSend,
            rates,
            demands_path,
            only_v6: needs.require.contains(P::UseTemporaryLocalAddress),
            isolate,
            own_sessions: None,
        })))
    }

    /// Ranks the stacks that may serve, of those that this process can have.
    pub(crate) fn rank(
        &mut self,
        needs: &neater_property::Needs,
        need: SecurityNeed,
        shape: neater_policy::Shape,
        mut eligible: Vec<Stack>,
        unfit: Vec<neater_policy::Excluded>,
    ) -> Result<neater_policy::Request, EstablishmentError> {
        let mut impossible = setup::impossible(&mut self.cx, &mut eligible);
        impossible.extend(unfit);
        let stacks: Vec<_> = eligible.iter().map(|s| s.features()).collect();
        let mut policy = neater_policy::compile_with(needs, need, shape, &stacks).map_err(|e| {
            let mut error = EstablishmentError::new(Reason::NoCandidates, "no protocol stack can serve this request");
            error.excluded = e.stacks.iter().chain(&impossible).map(ToString::to_string).collect();
            error
        })?;
        policy.excluded.extend(impossible);
        policy.excluded.sort_by_key(|e| e.stack);
        Ok(policy)
    }

    /// The request of one isolated connection.
    pub(crate) fn isolated(&mut self, request: &Request, isolate: &Isolate) -> Request {
        // 0 is what all connections share that are not isolated.
        let isolation = self.cx.rng.u64().max(1);
        let common = &*request.0;
        let (setups, sessions) = common.setups.isolated(&self.cx.config.crypto, isolation, isolate.sessions);
        Request(Arc::new(Compiled {
            setups,
            isolation,
            isolate: None,
            direct: isolate.direct,
            own_sessions: Some(Arc::new(sessions)),
            ..common.clone()
        }))
    }
}

/// Whether an application protocol is a version of HTTP.
fn is_http(alpn: &[u8]) -> bool {
    alpn == b"h2" || alpn == b"h3" || alpn.starts_with(b"http/")
}
