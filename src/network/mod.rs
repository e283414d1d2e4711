//! A pod's links and addresses, its resolver and hosts files. Decides no policy.
